import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { stored } from '../../api/documents.ts'
import { get, submit } from '../../api/http.ts'
import type { DocumentInfo, Found } from '../../api/types.ts'
import { ago, bytes, count, score } from '../../logic/format.ts'
import { useSettled } from '../../ui/hooks.ts'
import { Button, Failure, Loading, Panel } from '../../ui/parts.tsx'
import { Readers } from './access.tsx'
import { DocumentPanel } from './document.tsx'

const PAGE_SIZE = 1000

interface Page {
  documents: DocumentInfo[]
  next_page_token: string | null
}

export function IndexView({ index, writes }: { index: string; writes: boolean }) {
  const queries = useQueryClient()
  const [tokens, setTokens] = useState<string[]>([''])
  const [query, setQuery] = useState('')
  const [name, setName] = useState('')
  const [opened, setOpened] = useState<DocumentInfo | null>(null)
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())
  const [sure, setSure] = useState(false)
  const asked = useSettled(query.trim(), 300)
  const token = tokens.at(-1) ?? ''
  const page = useQuery({
    queryKey: ['documents', index, token],
    queryFn: () => get<Page>(`documents?index=${encodeURIComponent(index)}&limit=${PAGE_SIZE}&page_token=${encodeURIComponent(token)}`),
  })
  const found = useQuery({
    queryKey: ['found', index, asked],
    queryFn: () => submit<{ results: Found[] }>('retrieve', { index_name: index, query: asked, max_node_count: 10 }),
    enabled: asked !== '',
  })
  const remove = useMutation({
    mutationFn: (ids: string[]) => submit(`indexes/${encodeURIComponent(index)}/documents/delete`, { doc_ids: ids }),
    onSuccess: async () => {
      setSelected(new Set())
      setSure(false)
      setOpened(null)
      await Promise.all([queries.invalidateQueries({ queryKey: ['documents'] }), queries.invalidateQueries({ queryKey: ['indexes'] })])
    },
  })
  // The API sorts documents by their ids. The console sorts and filters each page by name.
  const byId = page.data?.documents ?? []
  const whole = tokens.length === 1 && page.data?.next_page_token === null
  const wanted = name.trim().toLowerCase()
  const listed = byId.filter((each) => each.sourcefile.toLowerCase().includes(wanted)).sort((one, other) => one.sourcefile.localeCompare(other.sourcefile))
  const toggle = (id: string) => {
    const next = new Set(selected)
    if (!next.delete(id)) next.add(id)
    setSelected(next)
  }
  const opening = useMutation({
    mutationFn: async (id: string) => byId.find((each) => each.document_id === id) ?? (await stored(index, id)),
    onSuccess: setOpened,
  })
  return (
    <section aria-label={`Documents of ${index}`}>
      <div className="tools">
        <input type="search" value={query} placeholder="Search the passages" aria-label="Search the passages" onChange={(event) => { setQuery(event.target.value); opening.reset() }} />
        {!asked && (byId.length > 1 || name) && (
          <input type="search" value={name} placeholder={whole ? 'Filter by name' : 'Filter this page by name'} aria-label="Filter by name" onChange={(event) => setName(event.target.value)} />
        )}
        {wanted && !asked && (
          <span className="muted fine" role="status">
            {listed.length} of {count(byId.length, 'document')}
          </span>
        )}
        {selected.size > 0 && (
          <Button kind="danger" icon="trash" onClick={() => setSure(true)}>
            Delete {selected.size}
          </Button>
        )}
      </div>
      {asked && (
        <section className="found" aria-label="Passages found">
          {found.isPending && <Loading what="the passages" />}
          {found.error && <Failure error={found.error} />}
          {opening.error && <Failure error={opening.error} />}
          {opening.data === null && <p className="muted">This document has been deleted. Search again.</p>}
          {found.data?.results.length === 0 && <p className="muted">No passage was found. Try other words.</p>}
          <ol className="passages">
            {found.data?.results.map((each) => (
              <li key={each.node_id}>
                <header>
                  <button type="button" className="link" onClick={() => opening.mutate(each.doc_id)}>
                    {each.sourcepage}
                  </button>
                  <span className="muted fine number">
                    {score(each.score)} · by meaning {score(each.dense_score)} · by words {score(each.sparse_score)}
                  </span>
                </header>
                <p className="excerpt" tabIndex={0}>{each.text}</p>
              </li>
            ))}
          </ol>
        </section>
      )}
      {page.isPending && <Loading what="the documents" />}
      {page.error && <Failure error={page.error} retry={() => void page.refetch()} />}
      {!asked && listed.length > 0 && (
        <div className="table-scroll" tabIndex={0} role="region" aria-label="Documents">
          <table>
            <thead>
              <tr>
                {writes && (
                  <th className="narrow">
                    <input
                      type="checkbox"
                      aria-label="Select all"
                      checked={listed.every((each) => selected.has(each.document_id))}
                      onChange={(event) => setSelected(event.target.checked ? new Set(listed.map((each) => each.document_id)) : new Set())}
                    />
                  </th>
                )}
                <th>Name</th>
                <th>Type</th>
                <th className="number">Size</th>
                <th>Visible to</th>
                <th>Changed</th>
              </tr>
            </thead>
            <tbody>
              {listed.map((each) => (
                <tr key={each.document_id}>
                  {writes && (
                    <td className="narrow">
                      <input type="checkbox" aria-label={`Select ${each.sourcefile}`} checked={selected.has(each.document_id)} onChange={() => toggle(each.document_id)} />
                    </td>
                  )}
                  <td className="name">
                    <button type="button" className="link" onClick={() => setOpened(each)}>
                      {each.sourcefile}
                    </button>
                  </td>
                  <td className="muted nowrap">{kindOf(each)}</td>
                  <td className="number muted">{bytes(each.size_bytes)}</td>
                  <td className="readers"><Readers document={each} /></td>
                  <td className="muted nowrap">{ago(each.updated_at)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <div className="pager">
        {tokens.length > 1 && <Button onClick={() => setTokens(tokens.slice(0, -1))}>Back</Button>}
        {page.data?.next_page_token && <Button onClick={() => setTokens([...tokens, page.data.next_page_token ?? ''])}>More</Button>}
      </div>
      {opened && <DocumentPanel index={index} place={byId.includes(opened) ? (tokens.length - 1) * PAGE_SIZE + byId.indexOf(opened) : null} failure={remove.error} document={opened} writes={writes} onClose={() => { setOpened(null); remove.reset() }} onDelete={() => remove.mutate([opened.document_id])} />}
      <Panel title={`Delete ${count(selected.size, 'document')} of ${index}?`} open={sure} onClose={() => { setSure(false); remove.reset() }} description="This deletes the documents with all passages and originals. You cannot undo it.">
        {remove.error && <Failure error={remove.error} />}
        <div className="actions">
          <Button onClick={() => { setSure(false); remove.reset() }}>Cancel</Button>
          <Button kind="danger" disabled={remove.isPending} onClick={() => remove.mutate([...selected])}>
            Delete
          </Button>
        </div>
      </Panel>
    </section>
  )
}

function kindOf(document: DocumentInfo): string {
  return document.content_type.replace(/^application\/vnd\.openxmlformats-officedocument\.(\w+).*$/, '$1').replace(/^(text|application|image)\//, '')
}
