/** Proof Key for Code Exchange (RFC 7636). */

/** Return a random text of 256 bits. */
export function randomText(): string {
  return base64url(crypto.getRandomValues(new Uint8Array(32)))
}

/** Return the challenge of a verifier, by the method S256. */
export async function challengeOf(verifier: string): Promise<string> {
  return base64url(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier))))
}

/** Return bytes in base64url without padding. */
export function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '')
}
