import { useEffect } from 'react'
import { renewCredential } from '../api/http.ts'
import { renewal, renewed } from '../api/oidc.ts'
import type { Login } from '../api/types.ts'

const PAUSE = 20_000
const LONGEST = 2 ** 31 - 1

/** Renew the token of a sign-in before it expires, while the page is open. */
export function useRenewal(login: Login | undefined, credential: string, keep: (token: string) => void): void {
  useEffect(() => {
    if (!login?.useLogin || !credential) return
    let timer = 0
    let stopped = false
    const plan = (pause = 0) => {
      const next = renewal()
      if (next && !stopped) timer = window.setTimeout(renew, Math.min(LONGEST, Math.max(pause, next.at - Date.now())))
    }
    const renew = () => {
      const next = renewal()
      if (!next) return
      renewed(login, next).then(
        (token) => {
          if (stopped) return
          renewCredential(token)
          keep(token)
          plan()
        },
        // The provider does not answer or has ended the session. The gateway accepts the token until it expires.
        () => plan(PAUSE),
      )
    }
    plan()
    return () => {
      stopped = true
      clearTimeout(timer)
    }
  }, [login, credential, keep])
}
