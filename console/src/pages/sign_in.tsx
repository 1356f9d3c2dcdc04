import { useState, type FormEvent } from 'react'
import { beginSignIn } from '../api/oidc.ts'
import type { Login } from '../api/types.ts'
import { Button, Field } from '../ui/parts.tsx'

interface Props {
  login: Login | null
  problem: string
  onCredential: (value: string) => void
}

export function SignIn({ login, problem, onCredential }: Props) {
  const [key, setKey] = useState('')
  const [failed, setFailed] = useState('')
  function enter(event: FormEvent) {
    event.preventDefault()
    if (key.trim()) onCredential(key.trim())
  }
  return (
    <main className="alone sign-in">
      <h1>Causeway</h1>
      <p className="muted">Sign in to ask questions about your documents.</p>
      {(failed || problem) && (
        <p className="notice bad" role="alert">
          {failed || problem}
        </p>
      )}
      {login?.useLogin && (
        <>
          <Button kind="primary" onClick={() => void beginSignIn(login).catch((error: unknown) => setFailed(String(error instanceof Error ? error.message : error)))}>
            Sign in with your organisation
          </Button>
          <p className="or">or</p>
        </>
      )}
      <form onSubmit={enter}>
        <Field label="API key" hint="The browser stores the key until you close this tab. `causeway keys create` creates a key.">
          <input type="password" autoComplete="off" spellCheck={false} value={key} onChange={(event) => setKey(event.target.value)} autoFocus />
        </Field>
        <Button kind={login?.useLogin ? 'plain' : 'primary'} type="submit" icon="key" disabled={!key.trim()}>
          Sign in
        </Button>
      </form>
    </main>
  )
}
