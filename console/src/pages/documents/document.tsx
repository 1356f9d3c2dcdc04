import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { lazy, Suspense, useState } from 'react'
import { passagesOf } from '../../api/documents.ts'
import { get, send } from '../../api/http.ts'
import type { DocumentInfo } from '../../api/types.ts'
import { bytes } from '../../logic/format.ts'
import { Button, Failure, Loading, Panel } from '../../ui/parts.tsx'
import { Access } from './access.tsx'

const PdfPage = lazy(() => import('../ask/pdf.tsx'))
const MAX_TEXT = 200_000
const FIRST_PASSAGES = 20
const MORE_PASSAGES = 100

interface Props {
  index: string
  /** The position among the documents of the index, sorted by id; null if it is unknown. */
  place: number | null
  document: DocumentInfo
  /** The error of the deletion. */
  failure: Error | null
  writes: boolean
  onClose: () => void
  onDelete: () => void
}

export function DocumentPanel({ index, place, document, failure, writes, onClose, onDelete }: Props) {
  const [sure, setSure] = useState(false)
  const isPdf = document.content_type === 'application/pdf'
  const original = useQuery({
    queryKey: ['original', document.sourcefile, index],
    queryFn: async ({ signal }) => {
      const path = document.sourcefile.split('/').map(encodeURIComponent).join('/')
      const response = await send(`content/${path}?index=${encodeURIComponent(index)}`, { signal })
      return { type: 'application/pdf', data: await response.arrayBuffer() }
    },
    enabled: isPdf && document.has_original,
    retry: false,
  })
  // The text that ingest extracted from the document.
  const text = useQuery({
    queryKey: ['text', index, document.document_id],
    queryFn: async () => {
      const page = await get<{ documents: { doc_id: string; text: string; is_truncated: boolean }[] }>(
        `indexes/${encodeURIComponent(index)}/documents?limit=1&offset=${place}&max_text_length=${MAX_TEXT}`,
      )
      return page.documents.find((each) => each.doc_id === document.document_id) ?? null
    },
    enabled: !isPdf && place !== null,
  })
  const [shown, setShown] = useState(FIRST_PASSAGES)
  const passages = useQuery({
    queryKey: ['passages', index, document.document_id, shown],
    queryFn: () => passagesOf(index, document.document_id, shown),
    placeholderData: keepPreviousData,
  })
  return (
    <Panel title={document.sourcefile} open onClose={onClose} wide description={`${document.content_type} · ${bytes(document.size_bytes)} · SHA-256 ${document.sha256.slice(0, 16)}…`}>
      <Access index={index} document={document} writes={writes} />
      {isPdf && original.isPending && document.has_original && <Loading what="the document" />}
      {original.error && <Failure error={original.error} />}
      {original.data && (
        <Suspense fallback={<Loading what="the page" />}>
          <PdfPage data={original.data.data} page={1} passages={[]} />
        </Suspense>
      )}
      {text.data && <pre className="document" tabIndex={0}>{text.data.text}</pre>}
      <section aria-label="Passages">
        <h3 className="apart">Passages {passages.data && <span className="muted">{passages.data.total}</span>}</h3>
        {passages.isPending && <Loading what="the passages" />}
        {passages.error && <Failure error={passages.error} retry={() => void passages.refetch()} />}
        <ol className="passages">
          {passages.data?.passages.map((each) => (
            <li key={each.id}>
              <header>
                <span className="rank">{each.number + 1}</span>
                <b>{each.page ? `Page ${each.page}` : each.sourcepage}</b>
                <span className="muted fine">{each.headings.join(' › ')}</span>
              </header>
              <p className="excerpt" tabIndex={0}>{each.text}</p>
            </li>
          ))}
        </ol>
        {passages.data && passages.data.passages.length < passages.data.total && (
          <div className="pager">
            <Button disabled={passages.isFetching} onClick={() => setShown(shown + MORE_PASSAGES)}>
              Show more passages
            </Button>
          </div>
        )}
      </section>
      {failure && <Failure error={failure} />}
      {writes && (
        <div className="actions">
          {sure ? (
            <>
              <Button onClick={() => setSure(false)}>Cancel</Button>
              <Button kind="danger" onClick={onDelete}>
                Delete permanently
              </Button>
            </>
          ) : (
            <Button kind="danger" icon="trash" onClick={() => setSure(true)}>
              Delete
            </Button>
          )}
        </div>
      )}
    </Panel>
  )
}
