import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { get, submit } from '../../api/http.ts'
import type { Found, IndexInfo, Me } from '../../api/types.ts'
import { score } from '../../logic/format.ts'
import { searchOf, wordsOf, type Side } from '../../logic/lab.ts'
import { measured, moves, questionsOf, rankOf, type KnownQuestion } from '../../logic/measures.ts'
import { may } from '../../logic/session.ts'
import { Badge, Button, Empty, Failure, Field, Loading, Meter } from '../../ui/parts.tsx'
import { SaveSettings, Settings } from './settings.tsx'

const FIRST_SETTINGS: Side = { mode: 'hybrid', rerank: false, top: 10, fusion: null, dense_weight: null, expand: null, filter: '' }
const SECOND_SETTINGS: Side = { ...FIRST_SETTINGS, mode: 'text' }

function search(index: string, query: string, side: Side): Promise<{ results: Found[] }> {
  return submit('retrieve', searchOf(index, query, side))
}

export default function LabPage({ me }: { me: Me }) {
  const indexes = useQuery({ queryKey: ['indexes'], queryFn: () => get<IndexInfo[]>('indexes?details=true') })
  const [index, setIndex] = useState('')
  const [draft, setDraft] = useState('')
  const [query, setQuery] = useState('')
  const [sides, setSides] = useState<[Side, Side]>([FIRST_SETTINGS, SECOND_SETTINGS])
  const name = index || indexes.data?.[0]?.index_name || ''
  const shown = indexes.data?.find((each) => each.index_name === name)
  const one = useQuery({ queryKey: ['lab', name, query, sides[0]], queryFn: () => search(name, query, sides[0]), enabled: !!query && !!name })
  const other = useQuery({ queryKey: ['lab', name, query, sides[1]], queryFn: () => search(name, query, sides[1]), enabled: !!query && !!name })
  const found = [one, other]
  return (
    <div className="page">
      <header className="bar">
        <h1>Search lab</h1>
        <span className="muted fine">One query under two settings, or a file of questions</span>
      </header>
      <div className="content">
        {indexes.error && <Failure error={indexes.error} retry={() => void indexes.refetch()} />}
        {indexes.data?.length === 0 && (
          <Empty title="There are no documents to search" icon="lab">
            <p>Upload documents on the page Documents, then compare searches here.</p>
          </Empty>
        )}
        <form
          className="lab-form"
          onSubmit={(event) => {
            event.preventDefault()
            setQuery(draft.trim())
          }}
        >
          <Field label="Query">
            <input type="search" value={draft} onChange={(event) => setDraft(event.target.value)} />
          </Field>
          <Field label="Index">
            <select value={name} onChange={(event) => setIndex(event.target.value)}>
              {indexes.data?.map((each) => (
                <option key={each.index_name}>{each.index_name}</option>
              ))}
            </select>
          </Field>
          <Button kind="primary" type="submit" icon="search" disabled={!draft.trim() || !name}>
            Search
          </Button>
        </form>
        <div className="sides">
          {sides.map((side, place) => {
            const mine = found[place]
            const theirs = found[1 - place]
            const ids = mine?.data?.results.map((each) => each.node_id) ?? []
            const there = moves(ids, theirs?.data?.results.map((each) => each.node_id) ?? [])
            return (
              <section key={place} className="lab-side" aria-label={place === 0 ? 'First settings' : 'Second settings'}>
                <Settings side={side} title={place === 0 ? 'A' : 'B'} onChange={(next) => setSides((now) => (place === 0 ? [next, now[1]] : [now[0], next]))} />
                {mine?.isFetching && <Loading what="the passages" />}
                {mine?.error && <Failure error={mine.error} />}
                {mine?.data?.results.length === 0 && <p className="muted">The search found no passages. Try another mode, or other words.</p>}
                {!!mine?.data?.results.length && <p className="legend">score · by meaning · by words{side.rerank ? ' · reranker' : ''}</p>}
                <ol className="passages">
                  {mine?.data?.results.map((each, row) => (
                    <li key={each.node_id}>
                      <header>
                        <span className="rank">{row + 1}</span>
                        <b>{each.sourcepage}</b>
                        {theirs?.data && <Badge tone={there[row] ? 'plain' : 'accent'}>{there[row] ? `${place === 0 ? 'B' : 'A'}: ${there[row]}` : `not in ${place === 0 ? 'B' : 'A'}`}</Badge>}
                        <span className="muted fine number">
                          <Meter share={each.score / (mine.data.results[0]?.score || 1)} label="Share of the best score" /> {score(each.score)} · {score(each.dense_score)} · {score(each.sparse_score)}
                          {each.reranker_score !== undefined && each.reranker_score !== null && ` · ${score(each.reranker_score)}`}
                        </span>
                      </header>
                      <p className="excerpt" tabIndex={0}>
                        {wordsOf(each.text, query).map((part, number) => (part.marked ? <mark key={number}>{part.text}</mark> : part.text))}
                      </p>
                    </li>
                  ))}
                </ol>
              </section>
            )
          })}
        </div>
        {shown && <SaveSettings key={name} index={shown} sides={sides} canSave={may(me.roles, 'admin')} />}
        {name && <Questions index={name} sides={sides} />}
      </div>
    </div>
  )
}

interface Progress {
  done: number
  all: number
  ranks: [number[], number[]]
}

function Questions({ index, sides }: { index: string; sides: [Side, Side] }) {
  const [progress, setProgress] = useState<Progress | null>(null)
  const [failed, setFailed] = useState<unknown>(null)
  const run = async (file: File) => {
    setFailed(null)
    try {
      const questions: KnownQuestion[] = questionsOf(await file.text())
      const ranks: [number[], number[]] = [[], []]
      for (const [place, each] of questions.entries()) {
        const both = await Promise.all(sides.map((side) => search(index, each.question, { ...side, top: Math.max(10, side.top) })))
        both.forEach((found, which) => ranks[which as 0 | 1].push(rankOf(each, found.results.map((result) => result.sourcepage))))
        setProgress({ done: place + 1, all: questions.length, ranks })
      }
    } catch (error) {
      setFailed(error)
    }
  }
  const rows = progress ? progress.ranks.map(measured) : []
  return (
    <section className="lab-side" aria-label="A file of questions">
      <h2>A file of questions</h2>
      <p className="muted fine">
        One JSON object per line: <code>{'{"question": "…", "sourcepage": "guide.pdf#page=3"}'}</code>. The console measures both settings above.
      </p>
      <input
        type="file"
        accept=".jsonl,.json,.txt"
        aria-label="File of questions"
        onChange={(event) => {
          const file = event.target.files?.[0]
          event.target.value = ''
          if (file) void run(file)
        }}
      />
      {failed !== null && <Failure error={failed} />}
      {progress && (
        <>
          <p className="muted fine" role="status">
            {progress.done} of {progress.all} questions
          </p>
          <div className="table-scroll" tabIndex={0} role="region" aria-label="Measures">
            <table className="measures">
              <thead>
                <tr>
                  <th>Settings</th>
                  {[1, 3, 5, 10].map((depth) => (
                    <th key={depth} className="number">
                      Recall at {depth}
                    </th>
                  ))}
                  <th className="number">MRR</th>
                </tr>
              </thead>
              <tbody>
                {rows.map((row, place) => (
                  <tr key={place}>
                    <td>{place === 0 ? 'A' : 'B'}</td>
                    {[1, 3, 5, 10].map((depth) => (
                      <td key={depth} className="number">
                        {score(row.recall[depth])}
                      </td>
                    ))}
                    <td className="number">{score(row.mrr)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  )
}
