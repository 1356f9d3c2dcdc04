/** When a token is renewed. */

const MARGIN = 60_000
const LATEST = 0.75

/** Return the moment at which a token is renewed that came now: a minute before its end, or after most of a short life. */
export function renewAt(now: number, expiresIn: number): number {
  const life = expiresIn * 1000
  return now + Math.max(life * LATEST, life - MARGIN)
}
