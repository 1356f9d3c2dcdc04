import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useReducer, useRef, useState, type DragEvent } from 'react'
import { address, send } from '../../api/http.ts'
import { follow } from '../../api/jobs.ts'
import type { Job } from '../../api/types.ts'
import { bytes } from '../../logic/format.ts'
import { hashOf } from '../../logic/session.ts'
import { batches, isOver, namesOf, sending, summary, withJob, type Upload } from '../../logic/uploads.ts'
import { Badge, Button, Field, Meter, Panel } from '../../ui/parts.tsx'

type Change = { begin: Upload[] } | { name: string; to: (upload: Upload) => Upload } | { clear: true }

function changed(uploads: Upload[], change: Change): Upload[] {
  if ('clear' in change) return uploads.filter((each) => !isOver(each))
  if ('begin' in change) return [...change.begin, ...uploads.filter((each) => !change.begin.some((other) => other.name === each.name))]
  return uploads.map((each) => (each.name === change.name ? change.to(each) : each))
}

const WORDS: Record<Upload['state'], string> = {
  sending: 'sending',
  waiting: 'waiting',
  reading: 'reading',
  storing: 'storing',
  done: 'in',
  partly: 'partly read',
  unchanged: 'unchanged',
  failed: 'failed',
  cancelled: 'cancelled',
}
const TONES = { sending: 'accent', waiting: 'plain', reading: 'accent', storing: 'accent', done: 'good', partly: 'warn', unchanged: 'good', failed: 'bad', cancelled: 'warn' } as const

interface Access {
  oids: string
  groups: string
  category: string
}

export function Uploader({ index, isEmpty }: { index: string; isEmpty: boolean }) {
  const queries = useQueryClient()
  const [uploads, change] = useReducer(changed, [])
  const [over, setOver] = useState(false)
  const [dialog, setDialog] = useState<'text' | 'access' | 'url' | null>(null)
  const [access, setAccess] = useState<Access>({ oids: '', groups: '', category: '' })
  const stop = useRef<AbortController | null>(null)
  const choose = useRef<HTMLInputElement>(null)
  useEffect(() => {
    const controller = new AbortController()
    stop.current = controller
    return () => controller.abort()
  }, [])

  const watch = (job: Job, name = job.sourcefile) => {
    change({ name, to: (upload) => withJob(upload, job) })
    void follow(job, (now) => change({ name, to: (upload) => withJob(upload, now) }), stop.current?.signal).then(() => queries.invalidateQueries({ queryKey: ['indexes'] })).then(() => queries.invalidateQueries({ queryKey: ['documents'] }))
  }

  const post = async (files: File[]) => {
    const form = new FormData()
    form.set('index', index)
    if (access.category) form.set('category', access.category)
    for (const each of namesOf(access.oids)) form.append('oids', each)
    for (const each of namesOf(access.groups)) form.append('groups', each)
    for (const file of files) form.append('file', file, file.name)
    const { jobs } = (await (await send('documents', { method: 'POST', body: form })).json()) as { jobs: Job[] }
    for (const job of jobs) watch(job)
  }
  const bring = async (files: File[]) => {
    change({ begin: files.map((each) => sending(each.name, each.size)) })
    const groups = batches(files)
    for (let group = groups.shift(); group; group = groups.shift()) {
      try {
        await post(group)
      } catch (error) {
        // Nothing of a request is accepted where one file is refused: its files go one by one.
        if (group.length > 1) groups.unshift(...group.map((file) => [file]))
        else if (group[0]) fail(group[0].name, error)
      }
    }
  }
  const fail = (name: string, error: unknown) => {
    const reason = error instanceof Error ? error.message : String(error)
    change({ name, to: (upload) => ({ ...upload, state: 'failed', reason }) })
  }
  const sample = async () => {
    change({ begin: SAMPLE_CORPUS.map((each) => sending(each, 0)) })
    const files = await Promise.all(
      SAMPLE_CORPUS.map(async (name) => {
        const response = await fetch(address(`console/sample/${encodeURIComponent(name)}`))
        return new File([await response.blob()], name, { type: response.headers.get('content-type') ?? '' })
      }),
    )
    await bring(files)
  }
  const drop = (event: DragEvent) => {
    event.preventDefault()
    setOver(false)
    void bring([...event.dataTransfer.files])
  }
  const link = async (url: string) => {
    setDialog(null)
    const form = new FormData()
    form.set('index', index)
    form.set('url', url)
    change({ begin: [sending(url, 0)] })
    try {
      const { jobs } = (await (await send('documents', { method: 'POST', body: form })).json()) as { jobs: Job[] }
      for (const job of jobs) watch(job, url)
    } catch (error) {
      fail(url, error)
    }
  }

  const restricted = namesOf(access.oids).length + namesOf(access.groups).length
  return (
    <>
      <div
        className={`drop ${over ? 'over' : ''} ${isEmpty ? 'large' : ''}`}
        onDragOver={(event) => {
          event.preventDefault()
          setOver(true)
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        {isEmpty && <h2>Bring your first documents in</h2>}
        <p className="muted">
          Drop files here, into the index <b>{index}</b>.
        </p>
        <div className="actions">
          <Button kind="primary" icon="upload" onClick={() => choose.current?.click()}>
            Choose files
          </Button>
          <Button onClick={() => setDialog('text')}>Paste text</Button>
          <Button onClick={() => setDialog('url')}>From a URL</Button>
          <Button kind={restricted ? 'plain' : 'quiet'} icon="key" onClick={() => setDialog('access')}>
            {restricted ? `Seen by ${restricted}` : 'Seen by all'}
          </Button>
          <Button kind={isEmpty ? 'plain' : 'quiet'} onClick={() => void sample()}>
            Load the sample corpus
          </Button>
        </div>
        <input
          ref={choose}
          type="file"
          multiple
          hidden
          aria-label="Files to bring in"
          onChange={(event) => {
            void bring([...(event.target.files ?? [])])
            event.target.value = ''
          }}
        />
      </div>
      {uploads.length > 0 && (
        <section className="uploads" aria-label="Uploads">
          <header>
            <p role="status">{summary(uploads)}</p>
            {uploads.some((each) => each.state === 'done') && uploads.every(isOver) && (
              <a className="button primary" href={hashOf('ask')}>
                Ask about them
              </a>
            )}
            <Button kind="quiet" onClick={() => change({ clear: true })}>
              Clear
            </Button>
          </header>
          <ul className="rows" tabIndex={0} aria-label="Files">
            {uploads.map((each) => (
              <li key={each.name}>
                <span className="grow">
                  {each.name}
                  {each.reason && <small className={`reason ${each.state === 'failed' ? 'bad' : each.state === 'partly' ? 'warn' : ''}`}>{each.reason}</small>}
                </span>
                {each.size > 0 && <small className="muted nowrap">{bytes(each.size)}</small>}
                {!isOver(each) && <Meter share={each.percent / 100} label={`${each.name}: ${each.percent} %`} />}
                <Badge tone={TONES[each.state]}>{WORDS[each.state]}</Badge>
              </li>
            ))}
          </ul>
        </section>
      )}
      <PasteText open={dialog === 'text'} onClose={() => setDialog(null)} onText={(file) => void bring([file])} />
      <Panel title="Bring a document in from a URL" open={dialog === 'url'} onClose={() => setDialog(null)} description="The platform fetches it, from the hosts that CAUSEWAY_INGEST_URLS allows.">
        <form
          className="fields"
          onSubmit={(event) => {
            event.preventDefault()
            void link(String(new FormData(event.currentTarget).get('url') ?? '').trim())
          }}
        >
          <Field label="URL">
            <input type="url" name="url" required placeholder="https://docs.example.org/guide.pdf" />
          </Field>
          <div className="actions">
            <Button kind="primary" type="submit">
              Bring it in
            </Button>
          </div>
        </form>
      </Panel>
      <Panel title="Who may see the next documents" open={dialog === 'access'} onClose={() => setDialog(null)} description="Names with commas between them. Without any, everybody of the tenant sees the documents; administrators see all.">
        <div className="fields">
          <Field label="Users" hint="Their ids, as tokens and keys name them.">
            <input value={access.oids} onChange={(event) => setAccess({ ...access, oids: event.target.value })} />
          </Field>
          <Field label="Groups">
            <input value={access.groups} onChange={(event) => setAccess({ ...access, groups: event.target.value })} />
          </Field>
          <Field label="Category" hint="Questions can be narrowed to it.">
            <input value={access.category} onChange={(event) => setAccess({ ...access, category: event.target.value })} />
          </Field>
          <div className="actions">
            <Button kind="primary" onClick={() => setDialog(null)}>
              Done
            </Button>
          </div>
        </div>
      </Panel>
    </>
  )
}

function PasteText({ open, onClose, onText }: { open: boolean; onClose: () => void; onText: (file: File) => void }) {
  const [name, setName] = useState('')
  const [text, setText] = useState('')
  return (
    <Panel title="Paste text" open={open} onClose={onClose}>
      <form
        className="fields"
        onSubmit={(event) => {
          event.preventDefault()
          const title = name.trim().replace(/[/\\]/g, '-') || 'note'
          onText(new File([text], /\.(md|txt)$/.test(title) ? title : `${title}.md`, { type: 'text/markdown' }))
          setName('')
          setText('')
          onClose()
        }}
      >
        <Field label="Title" hint="Answers cite the text by this name.">
          <input value={name} onChange={(event) => setName(event.target.value)} required />
        </Field>
        <Field label="Text, plain or Markdown">
          <textarea rows={10} value={text} onChange={(event) => setText(event.target.value)} required />
        </Field>
        <div className="actions">
          <Button kind="primary" type="submit" disabled={!text.trim() || !name.trim()}>
            Bring it in
          </Button>
        </div>
      </form>
    </Panel>
  )
}

