import { useQuery, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useCallback, useEffect, useRef, useState } from 'react'
import { ApiError, get, useCredential } from './api/http.ts'
import type { Login, Me } from './api/types.ts'
import { finishSignIn, forgetRenewal } from './api/oidc.ts'
import { hashOf, pagesFor, type Page } from './logic/session.ts'
import { AskPage } from './pages/ask/page.tsx'
import { SignIn } from './pages/sign_in.tsx'
import { usePlace } from './ui/hooks.ts'
import { Icon } from './ui/icon.tsx'
import { Button, Empty, Failure, Loading } from './ui/parts.tsx'
import { useRenewal } from './ui/renewal.ts'
import { useTheme } from './ui/theme.ts'

const DocumentsPage = lazy(() => import('./pages/documents/page.tsx'))
const JobsPage = lazy(() => import('./pages/jobs.tsx'))
const LabPage = lazy(() => import('./pages/lab/page.tsx'))

const CREDENTIAL = 'causeway.credential'

export function App() {
  const queries = useQueryClient()
  const [credential, setCredential] = useState(() => sessionStorage.getItem(CREDENTIAL) ?? '')
  // After a renewal the page uses the new token and keeps its content.
  const latest = useRef(credential)
  const [begun, setBegun] = useState(false)
  const [problem, setProblem] = useState('')

  const use = useCallback(
    (value: string, reason = '') => {
      if (value) sessionStorage.setItem(CREDENTIAL, value)
      else {
        sessionStorage.removeItem(CREDENTIAL)
        forgetRenewal()
      }
      latest.current = value
      setProblem(reason)
      setCredential(value)
      queries.clear()
    },
    [queries],
  )
  useCredential(latest.current, () => use('', 'The gateway does not accept this credential. Sign in again.'))

  const login = useQuery({ queryKey: ['login'], queryFn: () => get<Login>('auth_setup') })
  const keep = useCallback((token: string) => {
    latest.current = token
    sessionStorage.setItem(CREDENTIAL, token)
  }, [])
  useRenewal(login.data, credential, keep)
  useEffect(() => {
    if (!login.data || begun) return
    setBegun(true)
    finishSignIn(login.data).then(
      (token) => token && use(token),
      (error: unknown) => setProblem(error instanceof Error ? error.message : String(error)),
    )
  }, [login.data, begun, use])

  const me = useQuery({ queryKey: ['me', credential], queryFn: () => get<Me>('me'), staleTime: Infinity })
  if (me.isPending) {
    return (
      <main className="alone">
        <h1>Causeway</h1>
        <Loading what="the console" />
      </main>
    )
  }
  if (me.error) {
    if (me.error instanceof ApiError && me.error.status === 401) {
      return <SignIn login={login.data ?? null} problem={problem} onCredential={use} />
    }
    return (
      <main className="alone">
        <Failure error={me.error} retry={() => void me.refetch()} />
        {credential && <Button onClick={() => use('')}>Sign out</Button>}
      </main>
    )
  }
  return <Shell me={me.data} onSignOut={credential ? () => use('') : null} />
}

function Shell({ me, onSignOut }: { me: Me; onSignOut: (() => void) | null }) {
  const place = usePlace()
  const [theme, toggleTheme] = useTheme()
  const pages = pagesFor(me.roles)
  const shown = pages.find((each) => each.page === place.page)
  useEffect(() => {
    document.title = `${shown?.title ?? 'Not found'} · Causeway`
  }, [shown])
  return (
    <div className="shell">
      <a className="skip" href="#content" onClick={(event) => {
        event.preventDefault()
        document.getElementById('content')?.focus()
      }}>
        Skip to the content
      </a>
      <header className="rail">
        <a className="brand" aria-label="Causeway" href={hashOf('ask')}>
          <Mark />
          <span>Causeway</span>
        </a>
        <nav aria-label="Pages">
          {pages.map((each) => (
            <a key={each.page} href={hashOf(each.page)} aria-current={each.page === place.page ? 'page' : undefined}>
              <Icon name={each.page} />
              <span>{each.title}</span>
            </a>
          ))}
        </nav>
        <div className="who">
          <p title={`Tenant ${me.tenant}`}>
            <b>{me.user || me.tenant}</b>
            <small>{me.roles.includes('admin') ? 'admin' : me.roles.join(', ')}</small>
          </p>
          <Button kind="quiet" icon={theme === 'dark' ? 'sun' : 'moon'} onClick={toggleTheme} aria-label={theme === 'dark' ? 'Use light colours' : 'Use dark colours'} />
          {onSignOut && <Button kind="quiet" icon="leave" onClick={onSignOut} aria-label="Sign out" />}
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        <Suspense fallback={<Loading what="the page" />}>{shown ? <Content page={shown.page} me={me} rest={place.rest} /> : <NotFound page={place.page} />}</Suspense>
      </main>
    </div>
  )
}

function Content({ page, me, rest }: { page: Page; me: Me; rest: string[] }) {
  switch (page) {
    case 'ask':
      return <AskPage me={me} rest={rest} />
    case 'documents':
      return <DocumentsPage me={me} rest={rest} />
    case 'jobs':
      return <JobsPage />
    case 'lab':
      return <LabPage me={me} />
  }
}

function NotFound({ page }: { page: string }) {
  return (
    <Empty title="This page is not available" icon="alert">
      <p>
        The page “{page}” does not exist, or your roles do not allow it. <a href={hashOf('ask')}>Ask a question</a> instead.
      </p>
    </Empty>
  )
}

function Mark() {
  return (
    <svg className="mark" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M6 14h20M9 14v7M16 14v7M23 14v7M6 25q2.5-2 5 0t5 0 5 0 5 0" />
    </svg>
  )
}
