import * as Tabs from '@radix-ui/react-tabs'
import { findingsOf, notesOf, passagesOf, promptOf, queryOf, stepsOf, thought, usageOf, type Answer } from '../../logic/answer.ts'
import type { Step } from '../../api/types.ts'
import { count, milliseconds, score } from '../../logic/format.ts'
import { startsNote, total, waterfall } from '../../logic/waterfall.ts'
import { Badge, Button, Meter } from '../../ui/parts.tsx'

interface Props {
  answer: Answer
  onClose: () => void
  onSource: (name: string) => void
}

export function How({ answer, onClose, onSource }: Props) {
  const { context } = answer
  const passages = passagesOf(context)
  const found = findingsOf(context.detections)
  const prompt = promptOf(context)
  return (
    <aside className="side" aria-label="How this answer was made">
      <header className="bar">
        <h2>How this answer was made</h2>
        <Button kind="quiet" icon="close" aria-label="Close" onClick={onClose} />
      </header>
      <Tabs.Root defaultValue="time" className="tabs">
        <Tabs.List aria-label="Parts of the answer">
          <Tabs.Trigger value="time">Time</Tabs.Trigger>
          <Tabs.Trigger value="passages">Passages {passages.length > 0 && <b>{passages.length}</b>}</Tabs.Trigger>
          <Tabs.Trigger value="prompt">Prompt</Tabs.Trigger>
          <Tabs.Trigger value="checks">Detections {found.length > 0 && <b>{found.length}</b>}</Tabs.Trigger>
        </Tabs.List>
        <Tabs.Content value="time">
          <Facts answer={answer} />
          <Waterfall steps={stepsOf(context)} />
          {notesOf(context).map((note) => (
            <p key={note} className="notice plain">
              {note}
            </p>
          ))}
        </Tabs.Content>
        <Tabs.Content value="passages">
          {!passages.length && <p className="muted">This answer uses no passages.</p>}
          <ol className="passages">
            {passages.map((each, place) => (
              <li key={each.id}>
                <header>
                  <span className="rank">{place + 1}</span>
                  <button type="button" className="link" onClick={() => onSource(each.sourcepage)}>
                    {each.sourcepage}
                  </button>
                  {each.index && <Badge>{each.index}</Badge>}
                </header>
                <Scores fused={each.score} dense={each.dense_score} sparse={each.sparse_score} reranker={each.reranker_score} />
                <p className="excerpt" tabIndex={0}>{each.content}</p>
              </li>
            ))}
          </ol>
        </Tabs.Content>
        <Tabs.Content value="prompt">
          {prompt.map((message, place) => (
            <section key={place} className="message">
              <h3>{message.role || 'message'}</h3>
              <pre tabIndex={0}>{message.content}</pre>
            </section>
          ))}
        </Tabs.Content>
        <Tabs.Content value="checks">
          {!found.length && (
            <p className="muted">
              {thought(context, 'Guardrails') ? 'The detectors found nothing.' : 'No detector checked this answer.'}
            </p>
          )}
          <table className="plain-table" hidden={!found.length}>
            <thead>
              <tr>
                <th>Found in</th>
                <th>Finding</th>
                <th>Text</th>
                <th className="number">Span</th>
                <th className="number">Score</th>
              </tr>
            </thead>
            <tbody>
              {found.map((each, place) => (
                <tr key={place}>
                  <td>{each.where}</td>
                  <td>
                    {each.name} <small className="muted">{each.detector}</small>
                  </td>
                  <td>
                    <mark>{each.text}</mark>
                  </td>
                  <td className="number">
                    {each.start}–{each.end}
                  </td>
                  <td className="number">{score(each.score)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Tabs.Content>
      </Tabs.Root>
    </aside>
  )
}

function Facts({ answer }: { answer: Answer }) {
  const { context } = answer
  const usage = usageOf(context)
  const query = thought(context, 'Generated search query')
  return (
    <dl className="facts">
      {query && (
        <div className="whole">
          <dt>Search query</dt>
          <dd>
            {queryOf(context)} <Badge>{query.props?.mode ?? 'hybrid'}</Badge>
          </dd>
        </div>
      )}
      {usage.answer && (
        <div>
          <dt>Tokens</dt>
          <dd title={`${usage.answer.prompt_tokens} in the prompt, ${usage.answer.completion_tokens} in the answer`}>
            {usage.answer.prompt_tokens} in, {usage.answer.completion_tokens} out
          </dd>
        </div>
      )}
      {usage.query && (
        <div>
          <dt>Tokens of the query</dt>
          <dd>{usage.query.total_tokens}</dd>
        </div>
      )}
      {answer.traceId && (
        <div className="whole">
          <dt>Trace</dt>
          <dd>
            <code>{answer.traceId}</code>
          </dd>
        </div>
      )}
    </dl>
  )
}

function Waterfall({ steps }: { steps: Step[] }) {
  const bars = waterfall(steps)
  const note = startsNote(steps)
  const end = total(bars)
  if (!bars.length) return <p className="muted">The times of the steps appear at the end of the answer.</p>
  return (
    <section aria-label="Time of each step">
      <h3>
        {milliseconds(end)} <span className="muted">in {count(bars.length, 'step')}</span>
      </h3>
      <ol className="waterfall">
        {bars.map((each, place) => (
          <li key={place} data-depth={each.depth}>
            <span className="name">{each.label}</span>
            {/* SVG, because its sizes are attributes: the content security policy forbids inline styles. */}
            <svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
              <rect className="track" width="1000" height="10" rx="2" />
              <rect className={`span ${each.name.replaceAll(' ', '-')}`} x={(1000 * each.start) / end} width={Math.max(4, (1000 * each.duration) / end)} height="10" />
            </svg>
            <span className="number">{milliseconds(each.duration)}</span>
          </li>
        ))}
      </ol>
      {note && <p className="muted fine">{note}</p>}
    </section>
  )
}

interface ScoresProps {
  fused: number | null | undefined
  dense: number | null | undefined
  sparse: number | null | undefined
  reranker: number | null | undefined
}

export function Scores({ fused, dense, sparse, reranker }: ScoresProps) {
  return (
    <dl className="scores">
      <div>
        <dt>Fused</dt>
        <dd>
          {score(fused)} <Meter share={fused ?? 0} label="Fused score" />
        </dd>
      </div>
      <div>
        <dt>By meaning</dt>
        <dd>{score(dense)}</dd>
      </div>
      <div>
        <dt>By words</dt>
        <dd>{score(sparse)}</dd>
      </div>
      <div>
        <dt>Reranker</dt>
        <dd>{score(reranker)}</dd>
      </div>
    </dl>
  )
}
