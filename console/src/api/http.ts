/** Sends requests to the gateway that served the page, below the path of the page. */

import { problemOf } from '../logic/problems.ts'

/** An error response of the gateway, with a message for the user. */
export class ApiError extends Error {
  readonly status: number
  readonly traceId: string
  readonly retryAfter: number | null

  constructor(status: number, message: string, traceId = '', retryAfter: number | null = null) {
    super(message)
    this.status = status
    this.traceId = traceId
    this.retryAfter = retryAfter
  }
}

let credential = ''
let refused: () => void = () => undefined

/** Use a credential for all further requests. Call `onRefused` when the gateway refuses the credential. */
export function useCredential(value: string, onRefused: () => void): void {
  credential = value
  refused = onRefused
}

/** Replace the credential with a new one of the same user. The page keeps its content. */
export function renewCredential(value: string): void {
  credential = value
}

/** Return the address of a path below the page's path. */
export function address(path: string): string {
  return new URL(path, document.baseURI.replace(/[#?].*$/, '')).href
}

/** Send a request with the caller's credential. Throw an `ApiError` if the gateway refuses it. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  if (credential) headers.set('authorization', `Bearer ${credential}`)
  let response: Response
  try {
    response = await fetch(address(path), { ...init, headers, credentials: 'omit' })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError(0, 'The gateway does not respond. Check that it runs and that you have a network connection, then try again.')
  }
  if (response.ok) return response
  if (response.status === 401 && credential) refused()
  const retry = Number(response.headers.get('retry-after') ?? 'NaN')
  throw new ApiError(
    response.status,
    problemOf(response.status, await response.text().catch(() => '')),
    response.headers.get('x-trace-id') ?? '',
    Number.isFinite(retry) ? retry : null,
  )
}

/** Return the JSON at a path. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await send(path, { headers: { accept: 'application/json' }, signal: signal ?? null })
  return (await response.json()) as T
}

/** Send JSON. Return the JSON of the response. */
export async function submit<T>(path: string, body: unknown, method = 'POST', signal?: AbortSignal): Promise<T> {
  const response = await send(path, {
    method,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: signal ?? null,
  })
  const text = await response.text()
  return (text ? JSON.parse(text) : null) as T
}
