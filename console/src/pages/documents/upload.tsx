import { useQueryClient } from '@tanstack/react-query'
import { memo, useEffect, useReducer, useRef, useState, type DragEvent } from 'react'
import { NO_LABELS, upload, type Labels } from '../../api/documents.ts'
import { address, ApiError } from '../../api/http.ts'
import { follow } from '../../api/jobs.ts'
import type { Job } from '../../api/types.ts'
import { bytes } from '../../logic/format.ts'
import { hashOf } from '../../logic/session.ts'
import { batches, inPlaceOf, isOver, namesOf, ordered, sending, summary, WHY_NO_RETRY, withJob, type Upload } from '../../logic/uploads.ts'
import { Badge, Button, Field, Meter, Panel } from '../../ui/parts.tsx'

type Change = { begin: Upload[] } | { name: string; to: (upload: Upload) => Upload } | { remove: string } | { clear: true }

function changed(uploads: Upload[], change: Change): Upload[] {
  if ('clear' in change) return uploads.filter((each) => !isOver(each))
  if ('remove' in change) return uploads.filter((each) => each.name !== change.remove)
  if ('begin' in change) return [...change.begin, ...uploads.filter((each) => !change.begin.some((other) => other.name === each.name))]
  return uploads.map((each) => (each.name === change.name ? change.to(each) : each))
}

const LABELS: Record<Upload['state'], string> = {
  sending: 'sending',
  waiting: 'waiting',
  reading: 'parsing',
  storing: 'indexing',
  done: 'indexed',
  partly: 'partly read',
  unchanged: 'unchanged',
  failed: 'failed',
  cancelled: 'cancelled',
}
const REASONS: Partial<Record<Upload['state'], string>> = { failed: 'bad', partly: 'warn' }
const REFRESH_MS = 2000
const TONES = { sending: 'accent', waiting: 'plain', reading: 'accent', storing: 'accent', done: 'good', partly: 'warn', unchanged: 'good', failed: 'bad', cancelled: 'warn' } as const

export function Uploader({ index, isEmpty, urls }: { index: string; isEmpty: boolean; urls: boolean }) {
  const queries = useQueryClient()
  const [uploads, change] = useReducer(changed, [])
  const [over, setOver] = useState(false)
  const [dialog, setDialog] = useState<'text' | 'access' | 'url' | null>(null)
  const [labels, setLabels] = useState(NO_LABELS)
  // The access list of each upload. A file that the user chooses again gets the same list.
  const labelled = useRef(new Map<string, Labels>())
  const unsent = useRef(new Map<string, File>())
  const [again, setAgain] = useState('')
  const refresh = useRef<'waits' | 'due' | null>(null)
  const stop = useRef<AbortController | null>(null)
  const choose = useRef<HTMLInputElement>(null)
  const chooseAgain = useRef<HTMLInputElement>(null)
  useEffect(() => {
    const controller = new AbortController()
    stop.current = controller
    return () => controller.abort()
  }, [])

  // Read the lists again at once, and then at most every two seconds, because hundreds of uploads may end together.
  const refreshed = () => queries.invalidateQueries({ queryKey: ['indexes'] }).then(() => queries.invalidateQueries({ queryKey: ['documents'] }))
  const refreshSoon = () => {
    if (refresh.current === 'waits') refresh.current = 'due'
    if (refresh.current) return
    refresh.current = 'waits'
    void refreshed()
    setTimeout(() => {
      const due = refresh.current === 'due'
      refresh.current = null
      if (due) refreshSoon()
    }, REFRESH_MS)
  }
  const watch = (job: Job, name = job.sourcefile) => {
    change({ name, to: (each) => withJob(each, job) })
    void follow(job, (now) => change({ name, to: (each) => withJob(each, now) }), stop.current?.signal).then(refreshSoon)
  }
  const uploadFiles = async (files: File[], given = labels) => {
    for (const each of files) {
      labelled.current.set(each.name, given)
      unsent.current.set(each.name, each)
    }
    change({ begin: files.map((each) => sending(each.name, each.size)) })
    const groups = batches(files)
    for (let group = groups.shift(); group; group = groups.shift()) {
      try {
        const jobs = await upload(index, group, given)
        for (const each of group) unsent.current.delete(each.name)
        for (const job of jobs) watch(job)
      } catch (error) {
        // If the gateway refuses one file, it refuses the whole request. Then the page sends the files one by one.
        if (group.length > 1) groups.unshift(...group.map((file) => [file]))
        else if (group[0]) fail(group[0].name, error)
      }
    }
  }
  const fail = (name: string, error: unknown) => {
    const reason = error instanceof Error ? error.message : String(error)
    change({ name, to: (each) => ({ ...each, state: 'failed', reason, sendsAgain: unsent.current.has(name) && isTemporary(error) }) })
  }
  const sample = async () => {
    change({ begin: SAMPLE_CORPUS.map((each) => sending(each, 0)) })
    const files = await Promise.all(
      SAMPLE_CORPUS.map(async (name) => {
        const response = await fetch(address(`console/sample/${encodeURIComponent(name)}`))
        return new File([await response.blob()], name, { type: response.headers.get('content-type') ?? '' })
      }),
    )
    await uploadFiles(files)
  }
  const drop = (event: DragEvent) => {
    event.preventDefault()
    setOver(false)
    void uploadFiles([...event.dataTransfer.files])
  }
  const link = async (url: string) => {
    setDialog(null)
    change({ begin: [sending(url, 0)] })
    try {
      for (const job of await upload(index, [url], labels)) watch(job, url)
    } catch (error) {
      fail(url, error)
    }
  }

  const tryAgain = (name: string) => {
    const file = unsent.current.get(name)
    if (file) {
      void uploadFiles([file], labelled.current.get(name))
      return
    }
    setAgain(name)
    chooseAgain.current?.click()
  }
  const restricted = namesOf(labels.oids).length + namesOf(labels.groups).length
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
        {isEmpty && <h2>Upload your first documents</h2>}
        <p className="muted">
          Drop files here to add them to the index <b>{index}</b>.
        </p>
        <div className="actions">
          <Button kind="primary" icon="upload" onClick={() => choose.current?.click()}>
            Choose files
          </Button>
          <Button onClick={() => setDialog('text')}>Paste text</Button>
          {urls && <Button onClick={() => setDialog('url')}>From a URL</Button>}
          <Button kind={restricted ? 'plain' : 'quiet'} icon="key" onClick={() => setDialog('access')}>
            {restricted ? `Visible to ${restricted}` : 'Visible to all'}
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
          aria-label="Files to upload"
          onChange={(event) => {
            void uploadFiles([...(event.target.files ?? [])])
            event.target.value = ''
          }}
        />
      </div>
      <input
        ref={chooseAgain}
        type="file"
        hidden
        aria-label="File to upload again"
        onChange={(event) => {
          const [file] = event.target.files ?? []
          const given = labelled.current.get(again)
          if (file) {
            change({ remove: again })
            void uploadFiles([inPlaceOf(again, file)], given)
          }
          event.target.value = ''
        }}
      />
      {uploads.length > 0 && (
        <section className="uploads" aria-label="Uploads">
          <header>
            <p role="status">{summary(uploads)}</p>
            {!uploads.every(isOver) && <Meter share={uploads.filter(isOver).length / uploads.length} label="Completed files" />}
            {uploads.some((each) => ['done', 'partly', 'unchanged'].includes(each.state)) && uploads.every(isOver) && (
              <a className="button primary" href={hashOf('ask', index)}>
                Ask about these documents
              </a>
            )}
            <Button kind="quiet" onClick={() => change({ clear: true })}>
              Clear
            </Button>
          </header>
          {uploads.some((each) => each.needsFile) && <p className="muted fine">{WHY_NO_RETRY}</p>}
          <ul className="rows" tabIndex={0} aria-label="Files">
            {ordered(uploads).map((each) => (
              <Row key={each.name} upload={each} onAgain={tryAgain} />
            ))}
          </ul>
        </section>
      )}
      <PasteText open={dialog === 'text'} onClose={() => setDialog(null)} onText={(file) => void uploadFiles([file])} />
      <Panel title="Upload a document from a URL" open={dialog === 'url'} onClose={() => setDialog(null)} description="The platform fetches the document. The operator allows hosts with CAUSEWAY_INGEST_URLS.">
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
              Upload
            </Button>
          </div>
        </form>
      </Panel>
      <Panel title="Access list of the next uploads" open={dialog === 'access'} onClose={() => setDialog(null)} description="Names, separated by commas. Without names, all callers of the tenant may see the documents. Administrators see all documents.">
        <div className="fields">
          <Field label="Users" hint="User ids from tokens or API keys.">
            <input value={labels.oids} onChange={(event) => setLabels({ ...labels, oids: event.target.value })} />
          </Field>
          <Field label="Groups">
            <input value={labels.groups} onChange={(event) => setLabels({ ...labels, groups: event.target.value })} />
          </Field>
          <Field label="Category" hint="Questions can filter documents by category.">
            <input value={labels.category} onChange={(event) => setLabels({ ...labels, category: event.target.value })} />
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

/** Return whether a request that failed may succeed later. */
function isTemporary(error: unknown): boolean {
  return !(error instanceof ApiError) || error.status === 0 || error.status === 429 || error.status >= 500
}

const Row = memo(RowView, (before, after) => before.upload === after.upload)

function RowView({ upload, onAgain }: { upload: Upload; onAgain: (name: string) => void }) {
  return (
    <li>
      <span className="grow">
        {upload.name}
        {upload.reason && <small className={`reason ${REASONS[upload.state] ?? ''}`}>{upload.reason}</small>}
      </span>
      {upload.needsFile && (
        <Button kind="quiet" icon="upload" aria-label={`Upload ${upload.name} again`} onClick={() => onAgain(upload.name)}>
          Upload again
        </Button>
      )}
      {upload.sendsAgain && (
        <Button kind="quiet" icon="again" aria-label={`Retry ${upload.name}`} onClick={() => onAgain(upload.name)}>
          Retry
        </Button>
      )}
      {upload.size > 0 && <small className="muted nowrap">{bytes(upload.size)}</small>}
      {!isOver(upload) && <Meter share={upload.percent / 100} label={`${upload.name}: ${upload.percent} %`} />}
      <Badge tone={TONES[upload.state]}>{LABELS[upload.state]}</Badge>
    </li>
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
        <Field label="Title" hint="Answers cite the text with this title.">
          <input value={name} onChange={(event) => setName(event.target.value)} required />
        </Field>
        <Field label="Text, plain or Markdown">
          <textarea rows={10} value={text} onChange={(event) => setText(event.target.value)} required />
        </Field>
        <div className="actions">
          <Button kind="primary" type="submit" disabled={!text.trim() || !name.trim()}>
            Upload
          </Button>
        </div>
      </form>
    </Panel>
  )
}

