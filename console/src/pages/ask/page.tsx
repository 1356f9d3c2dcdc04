import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useCallback, useEffect, useRef, useState } from 'react'
import { ask, DEFAULT_SETTINGS, type ChatSettings } from '../../api/chat.ts'
import { ApiError, get, submit } from '../../api/http.ts'
import type { ChatMessage, IndexInfo, Me } from '../../api/types.ts'
import { sourceOf, type Source } from '../../logic/citations.ts'
import { EMPTY_ANSWER, passagesOf, type Answer } from '../../logic/answer.ts'
import { LiveText } from '../../logic/live.ts'
import { hashOf, may } from '../../logic/session.ts'
import { useStored } from '../../ui/hooks.ts'
import { Button, Empty, Failure } from '../../ui/parts.tsx'
import { Composer } from './composer.tsx'
import { History } from './history.tsx'
import { How } from './how.tsx'
import { SettingsPanel } from './settings.tsx'
import { SourceView } from './source.tsx'
import { TurnView } from './turn.tsx'

export interface Turn {
  question: string
  answer: Answer
  /** The growing text of the answer. Null after the end. */
  live: LiveText | null
}

type Side = { kind: 'source'; turn: number; source: Source } | { kind: 'how'; turn: number } | null

const EXAMPLES = ['When will the pivot bearing be renewed?', 'How many leave days may be carried over?', 'What should the crew do when an electric car is burning?']

export function AskPage({ me, rest }: { me: Me; rest: string[] }) {
  const [settings, setSettings] = useStored<ChatSettings>('causeway.settings', DEFAULT_SETTINGS)
  // A link from the page Documents names the index of the next question.
  const named = rest[0] ?? ''
  useEffect(() => {
    if (named) setSettings({ ...settings, index: named, assistant: '' })
  }, [named])
  const [turns, setTurns] = useState<Turn[]>([])
  const [draft, setDraft] = useState('')
  const [side, setSide] = useState<Side>(null)
  const [dialog, setDialog] = useState<'settings' | 'history' | null>(null)
  const running = useRef<AbortController | null>(null)
  const queries = useQueryClient()
  // One request after the other, so that an older version of a conversation does not replace a newer one.
  const stored = useRef(Promise.resolve())
  const indexes = useQuery({ queryKey: ['indexes'], queryFn: () => get<IndexInfo[]>('indexes?details=true') })
  const busy = turns.at(-1)?.answer.state === 'waiting' || turns.at(-1)?.answer.state === 'streaming'

  const listed = indexes.data ?? []
  // A front end that limits its indexes does not list them. Then questions use its default index.
  const unlisted = indexes.error instanceof ApiError && indexes.error.status === 404
  const index = settings.index || (listed.some((each) => each.index_name === me.default_index) ? '' : (listed[0]?.index_name ?? ''))

  useEffect(() => () => running.current?.abort(), [])

  // Scroll a new question to the top. Its answer grows below it, so the text does not move while the user reads.
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (turns.length > 1) box.current?.lastElementChild?.scrollIntoView({ block: 'start' })
  }, [turns.length])

  const send = useCallback(async (question: string, before: Turn[], chosen: ChatSettings) => {
    running.current?.abort()
    const stop = new AbortController()
    running.current = stop
    setSide(null)
    const live = new LiveText()
    setTurns([...before, { question, answer: EMPTY_ANSWER, live }])
    // Render the page only when the state or the context of the answer changes. `live` has the growing text.
    let shown = EMPTY_ANSWER
    const messages: ChatMessage[] = [...conversation(before), { role: 'user', content: question }]
    const state = before.findLast((each) => each.answer.sessionState)?.answer.sessionState ?? null
    const answer = await ask(
      messages,
      chosen,
      state,
      (grown) => {
        live.update(grown.text)
        if (running.current !== stop || (grown.state === shown.state && grown.context === shown.context)) return
        shown = grown
        setTurns([...before, { question, answer: grown, live }])
      },
      stop.signal,
    )
    live.end()
    if (running.current !== stop) return
    const after = [...before, { question, answer, live: null }]
    setTurns(after)
    const id = state ?? answer.sessionState
    if (answer.state === 'done' && id) {
      stored.current = stored.current.then(() => store(after, id)).then(() => queries.invalidateQueries({ queryKey: ['history'] }))
    }
  }, [queries])

  const begin = (question: string, before: Turn[] = turns) => {
    setDraft('')
    void send(question, before, { ...settings, index: settings.assistant ? '' : index })
  }
  const startConversation = () => {
    running.current?.abort()
    running.current = null
    setTurns([])
    setSide(null)
  }

  const sideTurn = side ? turns[side.turn] : undefined
  return (
    <div className={`ask ${side && sideTurn ? 'with-side' : ''}`}>
      <section className="conversation" aria-label="Conversation">
        <header className="bar">
          <h1>Ask</h1>
          <span className="chips">
            <button type="button" className="chip" onClick={() => setDialog('settings')}>
              {settings.assistant || index || me.default_index || 'no index'} · {settings.mode}
              {settings.model ? ` · ${settings.model}` : ''}
            </button>
          </span>
          <Button kind="quiet" icon="settings" aria-label="Settings" onClick={() => setDialog('settings')} />
          <Button kind="quiet" icon="history" aria-label="History" onClick={() => setDialog('history')} />
          <Button kind="quiet" icon="plus" onClick={startConversation} disabled={!turns.length}>
            New
          </Button>
        </header>
        <div className="turns" ref={box}>
          {!turns.length && <Welcome me={me} hasDocuments={indexes.isPending || unlisted || listed.some((each) => each.documents > 0)} failed={unlisted ? null : indexes.error} index={indexes.isPending ? '' : index || me.default_index} onAsk={begin} />}
          {turns.map((turn, place) => (
            <TurnView
              key={place}
              turn={turn}
              isLast={place === turns.length - 1}
              shown={side?.turn === place ? side.kind : null}
              onSource={(name) => setSide({ kind: 'source', turn: place, source: sourceOf(name) })}
              onHow={() => setSide(side?.kind === 'how' && side.turn === place ? null : { kind: 'how', turn: place })}
              onAgain={() => begin(turn.question, turns.slice(0, place))}
              onEdit={(question) => begin(question, turns.slice(0, place))}
              onFollowUp={(question) => begin(question)}
            />
          ))}
        </div>
        <Composer draft={draft} onDraft={setDraft} busy={busy} onAsk={begin} onStop={() => running.current?.abort()} />
      </section>
      {side?.kind === 'source' && sideTurn && (
        <SourceView source={side.source} passages={passagesOf(sideTurn.answer.context)} onClose={() => setSide(null)} />
      )}
      {side?.kind === 'how' && sideTurn && <How answer={sideTurn.answer} onClose={() => setSide(null)} onSource={(name) => setSide({ ...side, kind: 'source', source: sourceOf(name) })} />}
      <SettingsPanel open={dialog === 'settings'} me={me} indexes={listed} index={index} settings={settings} onChange={setSettings} onClose={() => setDialog(null)} />
      <History
        open={dialog === 'history'}
        onClose={() => setDialog(null)}
        onOpen={(opened) => {
          startConversation()
          setTurns(opened.map((turn) => ({ ...turn, live: null })))
          setDialog(null)
        }}
      />
    </div>
  )
}

function conversation(turns: readonly Turn[]): ChatMessage[] {
  return turns.flatMap((turn) =>
    turn.answer.text
      ? [
          { role: 'user' as const, content: turn.question },
          { role: 'assistant' as const, content: turn.answer.text },
        ]
      : [],
  )
}

/** Store a conversation in the server's history. The page ignores a failure. */
async function store(turns: readonly Turn[], id: string): Promise<void> {
  const answers = turns.map(({ question, answer }) => [
    question,
    { message: { content: answer.text, role: 'assistant' }, context: answer.context, session_state: id },
  ])
  await submit('chat_history', { id, answers }).catch(() => undefined)
}

interface WelcomeProps {
  me: Me
  hasDocuments: boolean
  failed: unknown
  /** Empty while the page does not know which indexes exist. */
  index: string
  onAsk: (question: string) => void
}

function Welcome({ me, hasDocuments, failed, index, onAsk }: WelcomeProps) {
  // The examples are questions about the sample corpus.
  const documents = useQuery({
    queryKey: ['documents', index, 'sample'],
    queryFn: () => get<{ documents: { sourcefile: string }[] }>(`documents?index=${encodeURIComponent(index)}&limit=100`),
    enabled: hasDocuments && index !== '',
    retry: false,
  })
  const sample = documents.data?.documents.some((each) => SAMPLE_CORPUS.includes(each.sourcefile)) ?? false
  if (failed) return <Failure error={failed} />
  if (!hasDocuments) {
    return (
      <Empty title="There are no documents yet">
        {may(me.roles, 'ingest') ? (
          <>
            <p>Upload your own documents, or start with the sample corpus.</p>
            <p>
              <a className="button primary" href={hashOf('documents')}>
                Upload documents
              </a>
            </p>
          </>
        ) : (
          <p>You have no access to any document. Ask an administrator to upload documents, or to give you access.</p>
        )}
      </Empty>
    )
  }
  return (
    <div className="welcome">
      <h2>What would you like to know?</h2>
      <p className="muted">Answers come from your documents. The number after a fact opens the cited page.</p>
      {sample && (
        <ul>
          {EXAMPLES.map((each) => (
            <li key={each}>
              <button type="button" className="suggestion" onClick={() => onAsk(each)}>
                {each}
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
