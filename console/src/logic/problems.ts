/** Messages for the user about errors of the gateway. */

const ADVICE: Record<number, string> = {
  401: 'Sign in again.',
  413: 'Send less data in one request.',
  429: 'Wait a little, then try again.',
  503: 'Wait a little, then try again.',
  504: 'Try again, or send a smaller request.',
}

/** Return the message of an error for the user, with advice. Its position in the body depends on the dialect. */
export function problemOf(status: number, body: string): string {
  const message = messageOf(body) || `The gateway responded with status ${status}.`
  const advice = ADVICE[status]
  return advice && !/try again|sign in/i.test(message) ? `${message} ${advice}` : message
}

/** Return the message in the JSON of an error, or an empty text. */
export function messageOf(body: string): string {
  try {
    const parsed: unknown = JSON.parse(body)
    if (!parsed || typeof parsed !== 'object') return ''
    const { error, detail, message } = parsed as Record<string, unknown>
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
