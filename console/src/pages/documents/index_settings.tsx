import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState, type FormEvent } from 'react'
import { send, submit } from '../../api/http.ts'
import type { IndexInfo } from '../../api/types.ts'
import { count } from '../../logic/format.ts'
import { hashOf } from '../../logic/session.ts'
import { wrongIndexName } from '../../logic/uploads.ts'
import { Button, Failure, Field, Panel } from '../../ui/parts.tsx'

const LANGUAGES = ['auto', 'ar', 'da', 'de', 'el', 'en', 'es', 'fi', 'fr', 'hu', 'it', 'ja', 'ko', 'nl', 'no', 'pt', 'ro', 'ru', 'sv', 'th', 'tr', 'zh']

/** Return the settings in a form. An empty field becomes null, which means the default. */
function settingsOf(form: HTMLFormElement): Record<string, unknown> {
  const data = new FormData(form)
  const text = (name: string) => String(data.get(name) ?? '') || null
  const number = (name: string) => (text(name) === null ? null : Number(text(name)))
  return {
    chunk_tokens: number('chunk_tokens'),
    chunk_overlap: number('chunk_overlap'),
    fusion: text('fusion'),
    dense_weight: number('dense_weight'),
    expand: text('expand') === null ? null : text('expand') === 'true',
  }
}

function Fields({ index }: { index?: IndexInfo }) {
  return (
    <div className="fields two">
      <Field label="Tokens per passage" hint="Applies to documents that you upload from now on.">
        <input name="chunk_tokens" type="number" min={16} max={8192} defaultValue={index?.chunk_tokens ?? ''} placeholder="default" />
      </Field>
      <Field label="Overlap of passages in tokens">
        <input name="chunk_overlap" type="number" min={0} max={8191} defaultValue={index?.chunk_overlap ?? ''} placeholder="default" />
      </Field>
      <Field label="Fusion">
        <select name="fusion" defaultValue={index?.fusion ?? ''}>
          <option value="">default</option>
          <option value="scores">by scores</option>
          <option value="ranks">by ranks</option>
        </select>
      </Field>
      <Field label="Weight of meaning" hint="From 0 to 1. The weight of words is 1 minus this value.">
        <input name="dense_weight" type="number" min={0} max={1} step={0.05} defaultValue={index?.dense_weight ?? ''} placeholder="default" />
      </Field>
      <Field label="Query expansion">
        <select name="expand" defaultValue={index?.expand === null || index?.expand === undefined ? '' : String(index.expand)}>
          <option value="">default</option>
          <option value="true">always</option>
          <option value="false">never</option>
        </select>
      </Field>
    </div>
  )
}

export function CreateIndex({ open, onClose }: { open: boolean; onClose: () => void }) {
  const queries = useQueryClient()
  const [problem, setProblem] = useState('')
  const create = useMutation({
    mutationFn: (body: Record<string, unknown>) => submit<{ index_name: string }>('indexes', body),
    onSuccess: async (made) => {
      await queries.invalidateQueries({ queryKey: ['indexes'] })
      location.hash = hashOf('documents', made.index_name)
      onClose()
    },
  })
  const enter = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const data = new FormData(event.currentTarget)
    const name = String(data.get('index_name') ?? '').trim()
    const found = wrongIndexName(name)
    setProblem(found)
    if (found) return
    const chosen = Object.fromEntries(Object.entries(settingsOf(event.currentTarget)).filter(([, value]) => value !== null))
    create.mutate({ index_name: name, language: data.get('language'), ...chosen })
  }
  return (
    <Panel title="New index" open={open} onClose={onClose} description="An index contains documents that are searched together.">
      <form className="fields" onSubmit={enter}>
        <Field label="Name" {...(problem ? { hint: problem } : {})}>
          <input name="index_name" autoComplete="off" required aria-invalid={problem !== ''} />
        </Field>
        <Field label="Language of its documents">
          <select name="language" defaultValue="auto">
            {LANGUAGES.map((each) => (
              <option key={each} value={each}>
                {each === 'auto' ? 'auto: detect for each document' : each}
              </option>
            ))}
          </select>
        </Field>
        <details>
          <summary>Passages and search</summary>
          <Fields />
        </details>
        {create.error && <Failure error={create.error} />}
        <div className="actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={create.isPending}>
            Create
          </Button>
        </div>
      </form>
    </Panel>
  )
}

export function IndexSettings({ index, open, onClose }: { index: IndexInfo; open: boolean; onClose: () => void }) {
  const queries = useQueryClient()
  const [sure, setSure] = useState(false)
  const path = `indexes/${encodeURIComponent(index.index_name)}`
  const close = () => {
    setSure(false)
    onClose()
  }
  const done = async () => {
    await queries.invalidateQueries({ queryKey: ['indexes'] })
    close()
  }
  const change = useMutation({ mutationFn: (body: Record<string, unknown>) => submit(path, body, 'PATCH'), onSuccess: done })
  const remove = useMutation({
    mutationFn: () => send(path, { method: 'DELETE' }),
    onSuccess: async () => {
      location.hash = hashOf('documents')
      await done()
    },
  })
  return (
    <Panel title={`Settings of ${index.index_name}`} open={open} onClose={close} description="An empty field means the default of the platform. To change the embedding model or the language, run causeway index rebuild.">
      <form
        className="fields"
        onSubmit={(event) => {
          event.preventDefault()
          change.mutate(settingsOf(event.currentTarget))
        }}
      >
        <Fields index={index} />
        {(change.error ?? remove.error) && <Failure error={change.error ?? remove.error} />}
        <div className="actions">
          {sure ? (
            <Button kind="danger" disabled={remove.isPending} onClick={() => remove.mutate()}>
              Delete the index and {count(index.documents, 'document')} permanently
            </Button>
          ) : (
            <Button kind="quiet" icon="trash" onClick={() => setSure(true)}>
              Delete the index
            </Button>
          )}
          <span className="grow" />
          <Button kind="primary" type="submit" disabled={change.isPending}>
            Save
          </Button>
        </div>
      </form>
    </Panel>
  )
}
