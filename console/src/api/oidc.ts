/** Signs users in with OpenID Connect (authorization code flow with PKCE, RFC 7636), and renews tokens. */

import { challengeOf, randomText } from '../logic/pkce.ts'
import { renewAt } from '../logic/token_life.ts'
import { address } from './http.ts'
import type { Login } from './types.ts'

const SIGN_IN = 'causeway.sign-in'
const RENEWAL = 'causeway.renewal'

interface Provider {
  authorization_endpoint: string
  token_endpoint: string
}

interface Issued {
  access_token?: string
  refresh_token?: string
  expires_in?: number
  error_description?: string
  error?: string
}

/** A refresh token and the time of the renewal. */
export interface Renewal {
  token: string
  at: number
}

interface Begun {
  state: string
  verifier: string
  hash: string
}

async function providerOf(login: Login): Promise<Provider> {
  const authority = login.msalConfig.auth.authority.replace(/\/$/, '')
  const response = await fetch(`${authority}/.well-known/openid-configuration`, { credentials: 'omit' })
  if (!response.ok) throw new Error(`The provider at ${authority} has no valid configuration (status ${response.status}). Contact the administrator of the platform.`)
  return (await response.json()) as Provider
}

/** Open the provider's page for the sign-in. */
export async function beginSignIn(login: Login): Promise<void> {
  const provider = await providerOf(login)
  const begun: Begun = { state: randomText(), verifier: randomText(), hash: location.hash }
  sessionStorage.setItem(SIGN_IN, JSON.stringify(begun))
  const target = new URL(provider.authorization_endpoint)
  const scopes = login.tokenRequest.scopes.length ? login.tokenRequest.scopes : ['openid']
  const query = {
    response_type: 'code',
    client_id: login.msalConfig.auth.clientId,
    redirect_uri: address('.'),
    scope: scopes.join(' '),
    state: begun.state,
    code_challenge: await challengeOf(begun.verifier),
    code_challenge_method: 'S256',
  }
  for (const [name, value] of Object.entries(query)) target.searchParams.set(name, value)
  location.assign(target.href)
}

/** Return the token if the user returns from the provider's page, else null. */
export async function finishSignIn(login: Login): Promise<string | null> {
  const parameters = new URLSearchParams(location.search)
  const stored = sessionStorage.getItem(SIGN_IN)
  if (!stored || (!parameters.has('code') && !parameters.has('error'))) return null
  sessionStorage.removeItem(SIGN_IN)
  const begun = JSON.parse(stored) as Begun
  // The code is valid only once, so remove it from the address.
  history.replaceState(null, '', `${location.pathname}${begun.hash}`)
  if (parameters.get('state') !== begun.state) throw new Error('The response of the provider belongs to another sign-in. Sign in again.')
  if (parameters.has('error')) throw new Error(`The provider refused the sign-in: ${parameters.get('error_description') ?? parameters.get('error')}`)
  return issued(login, {
    grant_type: 'authorization_code',
    code: parameters.get('code') ?? '',
    redirect_uri: address('.'),
    code_verifier: begun.verifier,
  })
}

/** Return the refresh token of this tab's session, or null if the provider issued none. */
export function renewal(): Renewal | null {
  const stored = sessionStorage.getItem(RENEWAL)
  return stored ? (JSON.parse(stored) as Renewal) : null
}

/** Delete the refresh token. */
export function forgetRenewal(): void {
  sessionStorage.removeItem(RENEWAL)
}

/** Return a new access token for a refresh token. */
export function renewed(login: Login, { token }: Renewal): Promise<string> {
  return issued(login, { grant_type: 'refresh_token', refresh_token: token }, token)
}

/** Request an access token, and store the refresh token. Without a new refresh token, the old one remains valid. */
async function issued(login: Login, query: Record<string, string>, former = ''): Promise<string> {
  const provider = await providerOf(login)
  const response = await fetch(provider.token_endpoint, {
    method: 'POST',
    credentials: 'omit',
    body: new URLSearchParams({ ...query, client_id: login.msalConfig.auth.clientId }),
  })
  const answer = (await response.json().catch(() => ({}))) as Issued
  if (!response.ok || !answer.access_token) {
    throw new Error(`The provider issued no token: ${answer.error_description ?? answer.error ?? `status ${response.status}`}. Sign in again.`)
  }
  const token = answer.refresh_token ?? former
  if (token && answer.expires_in) {
    const stored: Renewal = { token, at: renewAt(Date.now(), answer.expires_in) }
    sessionStorage.setItem(RENEWAL, JSON.stringify(stored))
  } else {
    forgetRenewal()
  }
  return answer.access_token
}
