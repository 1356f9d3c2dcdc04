/** Calls to the gateway that served the page, below the path of the page. */

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

/** Use a credential for all further calls; call `onRefused` when the gateway refuses it. */
export function useCredential(value: string, onRefused: () => void): void {
  credential = value
  refused = onRefused
}

/** Use another credential of the same user; the page keeps its content. */
export function renewCredential(value: string): void {
  credential = value
}

/** Return the address of a path below the page's own. */
export function address(path: string): string {
  return new URL(path, document.baseURI.replace(/[#?].*$/, '')).href
}

/** Send a request with the caller's credential; throw an error of the gateway. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  if (credential) headers.set('authorization', `Bearer ${credential}`)
  let response: Response
  try {
    response = await fetch(address(path), { ...init, headers, credentials: 'omit' })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError(0, 'The gateway does not answer. Check that it runs and that this machine is connected, then try again.')
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

/** Get JSON. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await send(path, { headers: { accept: 'application/json' }, signal: signal ?? null })
  return (await response.json()) as T
}

/** Send JSON, and return the JSON of the response. */
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
