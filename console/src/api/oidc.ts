/** Signing in at an OpenID Connect provider: the authorization code flow with PKCE (RFC 7636), and renewing tokens. */

import { challengeOf, randomText } from '../logic/pkce.ts'
import { renewAt } from '../logic/token_life.ts'
import { address } from './http.ts'
import type { Login } from './types.ts'

const KEPT = 'causeway.sign-in'
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

/** The refresh token, and the time of the renewal. */
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
  if (!response.ok) throw new Error(`The provider at ${authority} has no usable configuration (status ${response.status}). Tell the administrator of the platform.`)
  return (await response.json()) as Provider
}

/** Open the provider's page. */
export async function beginSignIn(login: Login): Promise<void> {
  const provider = await providerOf(login)
  const begun: Begun = { state: randomText(), verifier: randomText(), hash: location.hash }
  sessionStorage.setItem(KEPT, JSON.stringify(begun))
  const target = new URL(provider.authorization_endpoint)
  const scopes = login.tokenRequest.scopes.length ? login.tokenRequest.scopes : ['openid']
  const asked = {
    response_type: 'code',
    client_id: login.msalConfig.auth.clientId,
    redirect_uri: address('.'),
    scope: scopes.join(' '),
    state: begun.state,
    code_challenge: await challengeOf(begun.verifier),
    code_challenge_method: 'S256',
  }
  for (const [name, value] of Object.entries(asked)) target.searchParams.set(name, value)
  location.assign(target.href)
}

/** Return the token if the user comes back from the provider's page, else null. */
export async function finishSignIn(login: Login): Promise<string | null> {
  const said = new URLSearchParams(location.search)
  const kept = sessionStorage.getItem(KEPT)
  if (!kept || (!said.has('code') && !said.has('error'))) return null
  sessionStorage.removeItem(KEPT)
  const begun = JSON.parse(kept) as Begun
  // The code is valid once, so remove it from the address.
  history.replaceState(null, '', `${location.pathname}${begun.hash}`)
  if (said.get('state') !== begun.state) throw new Error('The response of the provider belongs to another sign-in. Sign in again.')
  if (said.has('error')) throw new Error(`The provider refused: ${said.get('error_description') ?? said.get('error')}`)
  return issued(login, {
    grant_type: 'authorization_code',
    code: said.get('code') ?? '',
    redirect_uri: address('.'),
    code_verifier: begun.verifier,
  })
}

/** Return the refresh token of this tab's session; null if the provider gave none. */
export function renewal(): Renewal | null {
  const kept = sessionStorage.getItem(RENEWAL)
  return kept ? (JSON.parse(kept) as Renewal) : null
}

/** Forget the refresh token. */
export function forgetRenewal(): void {
  sessionStorage.removeItem(RENEWAL)
}

/** Return a new token for the session of a refresh token. */
export function renewed(login: Login, { token }: Renewal): Promise<string> {
  return issued(login, { grant_type: 'refresh_token', refresh_token: token }, token)
}

/** Request a token, and keep the refresh token. If the provider gives no new refresh token, the old one stays valid. */
async function issued(login: Login, asked: Record<string, string>, former = ''): Promise<string> {
  const provider = await providerOf(login)
  const response = await fetch(provider.token_endpoint, {
    method: 'POST',
    credentials: 'omit',
    body: new URLSearchParams({ ...asked, client_id: login.msalConfig.auth.clientId }),
  })
  const answer = (await response.json().catch(() => ({}))) as Issued
  if (!response.ok || !answer.access_token) {
    throw new Error(`The provider gave no token: ${answer.error_description ?? answer.error ?? `status ${response.status}`}. Sign in again.`)
  }
  const token = answer.refresh_token ?? former
  if (token && answer.expires_in) {
    const kept: Renewal = { token, at: renewAt(Date.now(), answer.expires_in) }
    sessionStorage.setItem(RENEWAL, JSON.stringify(kept))
  } else {
    forgetRenewal()
  }
  return answer.access_token
}
