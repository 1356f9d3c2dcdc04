import { useEffect } from 'react'
import { renewCredential } from '../api/http.ts'
import { renewal, renewed } from '../api/oidc.ts'
import type { Login } from '../api/types.ts'

const RETRY_MS = 20_000
const MAX_TIMEOUT_MS = 2 ** 31 - 1

/** Renew the token of a sign-in before it expires, while the page is open. */
export function useRenewal(login: Login | undefined, credential: string, store: (token: string) => void): void {
  useEffect(() => {
    if (!login?.useLogin || !credential) return
    let timer = 0
    let stopped = false
    const plan = (pause = 0) => {
      const next = renewal()
      if (next && !stopped) timer = window.setTimeout(renew, Math.min(MAX_TIMEOUT_MS, Math.max(pause, next.at - Date.now())))
    }
    const renew = () => {
      const next = renewal()
      if (!next) return
      renewed(login, next).then(
        (token) => {
          if (stopped) return
          renewCredential(token)
          store(token)
          plan()
        },
        // The provider does not respond, or has ended the session. The gateway accepts the token until it expires.
        () => plan(RETRY_MS),
      )
    }
    plan()
    return () => {
      stopped = true
      clearTimeout(timer)
    }
  }, [login, credential, store])
}
