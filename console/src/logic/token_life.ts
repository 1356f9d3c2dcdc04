/** Computes the time at which a token is renewed. */

const MARGIN = 60_000
const LATEST = 0.75

/** Return the renewal time of a new token: a minute before it expires, but not before 75 % of its life. */
export function renewAt(now: number, expiresIn: number): number {
  const life = expiresIn * 1000
  return now + Math.max(life * LATEST, life - MARGIN)
}
