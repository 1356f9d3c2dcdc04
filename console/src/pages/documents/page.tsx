import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { get } from '../../api/http.ts'
import type { IndexInfo, Me } from '../../api/types.ts'
import { count } from '../../logic/format.ts'
import { hashOf, may } from '../../logic/session.ts'
import { Button, Empty, Failure, Loading } from '../../ui/parts.tsx'
import { CreateIndex, IndexSettings } from './index_settings.tsx'
import { IndexView } from './index_view.tsx'
import { Uploader } from './upload.tsx'

export default function DocumentsPage({ me, rest }: { me: Me; rest: string[] }) {
  const [dialog, setDialog] = useState<'create' | 'settings' | null>(null)
  const indexes = useQuery({ queryKey: ['indexes'], queryFn: () => get<IndexInfo[]>('indexes?details=true') })
  const listed = indexes.data ?? []
  const name = rest[0] ?? listed[0]?.index_name ?? ''
  const shown = listed.find((each) => each.index_name === name)
  const writes = may(me.roles, 'ingest')
  return (
    <div className="page documents">
      <header className="bar">
        <h1>Documents</h1>
        <span className="grow" />
        {writes && (
          <Button icon="plus" onClick={() => setDialog('create')}>
            New index
          </Button>
        )}
      </header>
      <div className="columns">
        <nav className="indexes" aria-label="Indexes">
          {indexes.isPending && <Loading what="the indexes" />}
          {indexes.error && <Failure error={indexes.error} retry={() => void indexes.refetch()} />}
          {listed.map((each) => (
            <a key={each.index_name} href={hashOf('documents', each.index_name)} aria-current={each.index_name === name ? 'true' : undefined}>
              <b>{each.index_name}</b>
              <small>
                {count(each.documents, 'document')} · {count(each.chunks, 'passage')}
              </small>
            </a>
          ))}
        </nav>
        <div className="content">
          {shown && (
            <header className="index-head">
              <h2>{shown.index_name}</h2>
              <p className="muted fine">
                {[shown.embedding, `language ${shown.language ?? 'auto'}`, shown.chunk_tokens ? `${shown.chunk_tokens} tokens per passage` : '', shown.fusion ? `fusion by ${shown.fusion}` : ''].filter(Boolean).join(' · ')}
              </p>
              {shown.documents > 0 && (
                <a className="button" href={hashOf('ask', shown.index_name)}>
                  Ask
                </a>
              )}
              {may(me.roles, 'admin') && (
                <Button kind="quiet" icon="settings" onClick={() => setDialog('settings')}>
                  Settings
                </Button>
              )}
            </header>
          )}
          {writes && !indexes.isPending && <Uploader index={name || me.default_index || 'handbook'} isEmpty={!listed.some((each) => each.documents > 0)} urls={me.ingest_urls} />}
          {shown && <IndexView key={name} index={name} writes={writes} />}
          {!writes && indexes.data?.length === 0 && (
            <Empty title="There is no index yet">
              <p>Your role does not allow uploads. Ask an administrator to upload documents.</p>
            </Empty>
          )}
        </div>
      </div>
      <CreateIndex open={dialog === 'create'} onClose={() => setDialog(null)} />
      {shown && <IndexSettings key={shown.index_name} index={shown} open={dialog === 'settings'} onClose={() => setDialog(null)} />}
    </div>
  )
}
