import { useQuery } from '@tanstack/react-query'
import { lazy, Suspense } from 'react'
import { ApiError, send } from '../../api/http.ts'
import type { Passage } from '../../api/types.ts'
import { passagesOfFile, type Source } from '../../logic/citations.ts'
import { highlighted } from '../../logic/highlight.ts'
import { Badge, Button, Failure, Loading } from '../../ui/parts.tsx'
import { Scores } from './how.tsx'

const PdfPage = lazy(() => import('./pdf.tsx'))
const MAX_TEXT = 2_000_000

interface Props {
  source: Source
  passages: Passage[]
  onClose: () => void
}

/** The cited page beside the answer, as text or as a PDF page. The console never runs code of a document. */
export function SourceView({ source, passages, onClose }: Props) {
  const cited = passagesOfFile(passages, source.file)
  const onPage = cited.filter((each) => source.page === null || each.sourcepage.endsWith(`#page=${source.page}`))
  const index = cited[0]?.index ?? ''
  const original = useQuery({
    queryKey: ['original', source.file, index],
    queryFn: async ({ signal }) => {
      const response = await send(`content/${source.file.split('/').map(encodeURIComponent).join('/')}${index ? `?index=${encodeURIComponent(index)}` : ''}`, { signal })
      const type = (response.headers.get('content-type') ?? '').split(';')[0] ?? ''
      return { type, data: await response.arrayBuffer() }
    },
    staleTime: 60_000,
    retry: false,
  })
  return (
    <aside className="side" aria-label="Source">
      <header className="bar">
        <h2>
          {source.file}
          {source.page !== null && <small> page {source.page}</small>}
        </h2>
        <Button kind="quiet" icon="close" aria-label="Close" onClick={onClose} />
      </header>
      <div className="source">
        {original.isPending && <Loading what="the document" />}
        {original.data?.type === 'application/pdf' && (
          <Suspense fallback={<Loading what="the page" />}>
            <PdfPage data={original.data.data} page={source.page ?? 1} passages={onPage.map((each) => each.content)} />
          </Suspense>
        )}
        {original.data && isText(original.data.type) && <TextDocument data={original.data.data} passages={onPage.map((each) => each.content)} />}
        {isMissing(original.error) && <p className="notice plain">The platform has no original of this document. The answer is based on these passages.</p>}
        {original.error && !isMissing(original.error) && <Failure error={original.error} retry={() => void original.refetch()} />}
        <h3>{onPage.length === 1 ? 'The passage' : 'The passages'} of the answer</h3>
        {onPage.map((each) => (
          <section key={each.id} className="cited">
            <p className="excerpt whole">{each.content}</p>
            <Scores fused={each.score} dense={each.dense_score} sparse={each.sparse_score} reranker={each.reranker_score} />
          </section>
        ))}
        {index && <Badge>{index}</Badge>}
      </div>
    </aside>
  )
}

function isMissing(error: Error | null): boolean {
  return error instanceof ApiError && error.status === 404
}

function isText(type: string): boolean {
  return /^text\/(plain|markdown|csv)$|^application\/json$/.test(type)
}

function TextDocument({ data, passages }: { data: ArrayBuffer; passages: string[] }) {
  const text = new TextDecoder().decode(data.slice(0, MAX_TEXT))
  return (
    <pre className="document" tabIndex={0} aria-label="The document">
      {highlighted(text, passages).map((part, place) =>
        part.marked ? (
          <mark key={place} ref={place === firstMark(text, passages) ? reveal : undefined}>
            {part.text}
          </mark>
        ) : (
          <span key={place}>{part.text}</span>
        ),
      )}
    </pre>
  )
}

function firstMark(text: string, passages: string[]): number {
  return highlighted(text, passages).findIndex((each) => each.marked)
}

function reveal(element: HTMLElement | null): void {
  const box = element?.closest('.document')
  if (element && box) box.scrollTop = element.offsetTop - 40
}
