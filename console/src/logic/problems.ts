/** Messages for the user about errors of the gateway. */

const WHAT_NEXT: Record<number, string> = {
  401: 'Sign in again.',
  413: 'Send less data in one request.',
  429: 'Wait a little, then try again.',
  503: 'Wait a little, then try again.',
  504: 'Try again, or send a smaller request.',
}

/** Return the message in the body of an error, and what the user can do. The place of the message depends on the dialect. */
export function problemOf(status: number, body: string): string {
  const said = messageOf(body) || `The gateway answered with the status ${status}.`
  const next = WHAT_NEXT[status]
  return next && !/try again|sign in/i.test(said) ? `${said} ${next}` : said
}

/** Return the message of an error's JSON, or an empty text. */
export function messageOf(body: string): string {
  try {
    const read: unknown = JSON.parse(body)
    if (!read || typeof read !== 'object') return ''
    const { error, detail, message } = read as Record<string, unknown>
    if (typeof error === 'string') return error
    if (error && typeof error === 'object' && typeof (error as { message?: unknown }).message === 'string') {
      return (error as { message: string }).message
    }
    if (typeof detail === 'string') return detail
    return typeof message === 'string' ? message : ''
  } catch {
    return ''
  }
}
