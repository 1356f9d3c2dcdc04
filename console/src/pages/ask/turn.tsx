import { memo, useMemo, useState } from 'react'
import { findingsOf, passagesOf, stepsOf } from '../../logic/answer.ts'
import { count, milliseconds } from '../../logic/format.ts'
import { total, waterfall } from '../../logic/waterfall.ts'
import { Badge, Button } from '../../ui/parts.tsx'
import type { Turn } from './page.tsx'
import { AnswerText } from './text.tsx'

interface Props {
  turn: Turn
  isLast: boolean
  shown: 'source' | 'how' | null
  onSource: (name: string) => void
  onHow: () => void
  onAgain: () => void
  onEdit: (question: string) => void
  onFollowUp: (question: string) => void
}

export const TurnView = memo(
  function TurnView({ turn, isLast, shown, onSource, onHow, onAgain, onEdit, onFollowUp }: Props) {
    const { question, answer, live } = turn
    const { context } = answer
    const known = useMemo(() => context.data_points?.citations ?? passagesOf(context).map((each) => each.sourcepage), [context])
    const busy = answer.state === 'waiting' || answer.state === 'streaming'
    return (
      <article className="turn">
        <Question text={question} busy={busy} onEdit={onEdit} />
        <div className="answer" aria-busy={busy}>
          {answer.state === 'waiting' && (
            <p className="loading" role="status">
              <span className="spinner" aria-hidden="true" /> Searching the documents …
            </p>
          )}
          <AnswerText text={answer.text} live={live} known={known} onSource={onSource} />
          {answer.state === 'stopped' && <p className="muted fine">You stopped this answer.</p>}
          {answer.state === 'failed' && (
            <div className="notice bad" role="alert">
              <p>{answer.error}</p>
              <Button icon="again" onClick={onAgain}>
                Ask again
              </Button>
            </div>
          )}
          {(answer.context.warnings ?? []).map((each) => (
            <p key={each.type} className="notice warn">
              {each.message}
            </p>
          ))}
          {!busy && <Foot turn={turn} shown={shown} onHow={onHow} onAgain={onAgain} />}
          {isLast && !busy && !!answer.context.followup_questions?.length && (
            <ul className="follow-ups" aria-label="Questions to ask next">
              {answer.context.followup_questions.map((each) => (
                <li key={each}>
                  <button type="button" className="suggestion" onClick={() => onFollowUp(each)}>
                    {each}
                  </button>
                </li>
              ))}
            </ul>
          )}
        </div>
      </article>
    )
  },
  (before, after) => before.turn === after.turn && before.isLast === after.isLast && before.shown === after.shown,
)

function Question({ text, busy, onEdit }: { text: string; busy: boolean; onEdit: (text: string) => void }) {
  const [draft, setDraft] = useState<string | null>(null)
  if (draft === null) {
    return (
      <div className="question">
        <h2>{text}</h2>
        {!busy && <Button kind="quiet" icon="edit" aria-label="Edit the question" onClick={() => setDraft(text)} />}
      </div>
    )
  }
  return (
    <form
      className="question editing"
      onSubmit={(event) => {
        event.preventDefault()
        if (draft.trim()) onEdit(draft.trim())
        setDraft(null)
      }}
    >
      <textarea aria-label="Question to ask instead" value={draft} rows={2} autoFocus onChange={(event) => setDraft(event.target.value)} />
      <Button type="submit" kind="primary">
        Ask
      </Button>
      <Button onClick={() => setDraft(null)}>Cancel</Button>
    </form>
  )
}

interface FootProps {
  turn: Turn
  shown: 'source' | 'how' | null
  onHow: () => void
  onAgain: () => void
}

function Foot({ turn, shown, onHow, onAgain }: FootProps) {
  const { answer } = turn
  const steps = stepsOf(answer.context)
  const found = findingsOf(answer.context.detections)
  const passages = passagesOf(answer.context)
  return (
    <footer className="foot">
      {answer.state !== 'failed' && (
        <Button kind="quiet" icon="how" onClick={onHow} aria-pressed={shown === 'how'}>
          How this answer was made
        </Button>
      )}
      <span className="muted fine">
        {passages.length > 0 && count(passages.length, 'passage')}
        {steps.length > 0 && ` · ${milliseconds(total(waterfall(steps)))}`}
      </span>
      {found.length > 0 && <Badge tone="warn">{count(found.length, 'detection')}</Badge>}
      <span className="grow" />
      <Button kind="quiet" icon="copy" aria-label="Copy the answer" onClick={() => void navigator.clipboard?.writeText(answer.text)} />
      <Button kind="quiet" icon="again" aria-label="Ask again" onClick={onAgain} />
    </footer>
  )
}
