import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { get, submit } from '../api/http.ts'
import type { DeadJob, Job, Lane } from '../api/types.ts'
import { ago, count } from '../logic/format.ts'
import { needsFile, warningsOf, WHY_NO_RETRY } from '../logic/uploads.ts'
import { Badge, Button, Empty, Failure, Loading, Meter } from '../ui/parts.tsx'
import { UploadAgain } from './upload_again.tsx'

const STATES = [
  ['', 'All'],
  ['queued', 'Waiting'],
  ['parsing', 'Parsing'],
  ['indexing', 'Indexing'],
  ['failed', 'Failed'],
  ['succeeded', 'Succeeded'],
  ['cancelled', 'Cancelled'],
] as const

const TONES = { queued: 'plain', parsing: 'accent', indexing: 'accent', succeeded: 'good', unchanged: 'good', failed: 'bad', cancelled: 'warn' } as const
const RUNNING = ['queued', 'parsing', 'indexing']
const POLL_MS = 2000

interface Listed<T> {
  jobs: T[]
  next_page_token: string | null
}

export default function JobsPage() {
  const [shown, setShown] = useState<'jobs' | 'dead'>('jobs')
  const dead = useQuery({ queryKey: ['dead'], queryFn: () => get<Listed<DeadJob>>('jobs/dead?limit=100'), refetchInterval: 5000 })
  return (
    <div className="page">
      <header className="bar">
        <h1>Jobs</h1>
        <span className="grow" />
        <div className="switch" role="group" aria-label="Jobs to show">
          <button type="button" aria-pressed={shown === 'jobs'} onClick={() => setShown('jobs')}>
            All jobs
          </button>
          <button type="button" aria-pressed={shown === 'dead'} onClick={() => setShown('dead')}>
            Failed permanently {!!dead.data?.jobs.length && <b>{dead.data.jobs.length}</b>}
          </button>
        </div>
      </header>
      <div className="content">
        <Lanes />
        {shown === 'jobs' ? <All /> : <Dead jobs={dead.data?.jobs} error={dead.error} />}
      </div>
    </div>
  )
}

/** Show the number of the tenant's jobs in each lane of the queue. */
function Lanes() {
  const lanes = useQuery({ queryKey: ['lanes'], queryFn: () => get<{ lanes: Lane[] }>('jobs/lanes'), refetchInterval: POLL_MS })
  if (lanes.error) return <Failure error={lanes.error} retry={() => void lanes.refetch()} />
  if (!lanes.data) return null
  const all = lanes.data.lanes.reduce((sum, each) => sum + each.jobs, 0)
  return (
    <section className="lanes" aria-label="Lanes of the queue">
      <h2 title="A job waits in the first lane with a free place. Workers take jobs most often from the first lane.">
        Lanes <span className="muted">{all ? `${count(all, 'job')} of your tenant` : 'all empty'}</span>
      </h2>
      <ol>
        {lanes.data.lanes.map((each) => (
          <li key={each.lane}>
            <span className="muted">Lane {each.lane}</span>
            <Meter share={each.places ? each.jobs / each.places : each.jobs ? 1 : 0} label={`Lane ${each.lane}`} />
            <span className="number">
              {each.jobs}
              {each.places !== null && <span className="muted"> / {each.places}</span>}
            </span>
          </li>
        ))}
      </ol>
    </section>
  )
}

interface Replayed {
  replayed: string[]
  not_found: string[]
}

/** Return a mutation that replays permanently failed jobs. */
function useReplay() {
  const queries = useQueryClient()
  return useMutation({
    mutationFn: (body: { all: true } | { job_ids: string[] }) => submit<Replayed>('jobs/dead/replay', body),
    onSettled: () => Promise.all(['dead', 'jobs', 'lanes'].map((key) => queries.invalidateQueries({ queryKey: [key] }))),
  })
}

function All() {
  const queries = useQueryClient()
  const [state, setState] = useState('')
  const [token, setToken] = useState('')
  const [again, setAgain] = useState<Job | null>(null)
  const jobs = useQuery({
    queryKey: ['jobs', state, token],
    queryFn: () => get<Listed<Job>>(`jobs?limit=50&state=${state}&page_token=${encodeURIComponent(token)}`),
    refetchInterval: POLL_MS,
  })
  const cancel = useMutation({
    mutationFn: (id: string) => submit<Job>(`jobs/${id}/cancel`, {}),
    onSettled: () => queries.invalidateQueries({ queryKey: ['jobs'] }),
  })
  const replay = useReplay()
  return (
    <>
      <div className="tools">
        <label className="inline">
          <span>State</span>
          <select
            value={state}
            onChange={(event) => {
              setState(event.target.value)
              setToken('')
            }}
          >
            {STATES.map(([value, title]) => (
              <option key={value} value={value}>
                {title}
              </option>
            ))}
          </select>
        </label>
        {jobs.data && <span className="muted fine">{count(jobs.data.jobs.length, 'job')} on this page, most recently changed first</span>}
      </div>
      {jobs.data?.jobs.some(needsFile) && <p className="muted fine">{WHY_NO_RETRY}</p>}
      {cancel.error && <Failure error={cancel.error} />}
      {replay.error && <Failure error={replay.error} />}
      {jobs.isPending && <Loading what="the jobs" />}
      {jobs.error && <Failure error={jobs.error} retry={() => void jobs.refetch()} />}
      {jobs.data?.jobs.length === 0 && (
        <Empty title="There are no jobs" icon="jobs">
          <p>Each upload is a job. Upload documents on the page Documents.</p>
        </Empty>
      )}
      {!!jobs.data?.jobs.length && (
        <div className="table-scroll" tabIndex={0} role="region" aria-label="Jobs">
          <table>
            <thead>
              <tr>
                <th>Document</th>
                <th>Index</th>
                <th>State</th>
                <th>Progress</th>
                <th className="number">Attempt</th>
                <th>Changed</th>
                <th>
                  <span className="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {jobs.data.jobs.map((job) => (
                <tr key={job.id}>
                  <td className="name">
                    {job.sourcefile || job.id}
                    {job.error && <small className="reason bad">{job.error.message}</small>}
                    {needsFile(job) && (
                      <Button icon="upload" aria-label={`Upload ${job.sourcefile} again`} onClick={() => setAgain(job)}>
                        Upload again
                      </Button>
                    )}
                    {job.warning_count > 0 && <small className="reason warn">{warningsOf(job)}</small>}
                  </td>
                  <td className="index">{job.index}</td>
                  <td>
                    <Badge tone={TONES[job.state]}>{job.state}</Badge>
                  </td>
                  <td>{RUNNING.includes(job.state) ? <Meter share={job.percent / 100} label={`${job.percent} %`} /> : <span className="muted nowrap">{passages(job)}</span>}</td>
                  <td className="number">{job.attempt || '–'}</td>
                  <td className="muted nowrap">{ago(job.updated_at)}</td>
                  <td className="number">
                    {RUNNING.includes(job.state) && (
                      <Button kind="quiet" disabled={cancel.isPending} onClick={() => cancel.mutate(job.id)}>
                        Cancel
                      </Button>
                    )}
                    {job.given_up && (
                      <Button kind="quiet" disabled={replay.isPending} onClick={() => replay.mutate({ job_ids: [job.id] })}>
                        Retry
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {again && <UploadAgain key={again.id} job={again} onClose={() => setAgain(null)} />}
      <div className="pager">
        {token && <Button onClick={() => setToken('')}>First page</Button>}
        {jobs.data?.next_page_token && <Button onClick={() => setToken(jobs.data.next_page_token ?? '')}>Older jobs</Button>}
      </div>
    </>
  )
}

function passages(job: Job): string {
  return job.progress.chunks_done ? count(job.progress.chunks_done, 'passage') : ''
}

function Dead({ jobs, error }: { jobs: DeadJob[] | undefined; error: unknown }) {
  const replay = useReplay()
  if (error) return <Failure error={error} />
  if (!jobs) return <Loading what="the jobs" />
  return (
    <>
      {replay.error && <Failure error={replay.error} />}
      {replay.data && (
        <p className="notice good" role="status">
          Queued again: {count(replay.data.replayed.length, 'job')}.
        </p>
      )}
      {!jobs.length && (
        <Empty title="No job has failed permanently" icon="check">
          <p>A job fails permanently after several failed attempts for an unknown reason. It is listed here until you retry it, or until newer ones need its space.</p>
        </Empty>
      )}
      {jobs.length > 0 && (
        <>
          <div className="tools">
            <Button icon="again" disabled={replay.isPending} onClick={() => replay.mutate({ all: true })}>
              Retry all
            </Button>
          </div>
          <div className="table-scroll" tabIndex={0} role="region" aria-label="Jobs that failed permanently">
            <table>
              <thead>
                <tr>
                  <th>Document</th>
                  <th>Index</th>
                  <th>Error</th>
                  <th className="number">Attempts</th>
                  <th>Failed</th>
                  <th>
                    <span className="hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {jobs.map((job) => (
                  <tr key={job.id}>
                    <td className="name">{job.sourcefile || job.id}</td>
                    <td className="index">{job.index}</td>
                    <td>{job.error.message}</td>
                    <td className="number">{job.attempt}</td>
                    <td className="muted nowrap">{ago(job.died_at)}</td>
                    <td className="number">
                      <Button kind="quiet" disabled={replay.isPending} onClick={() => replay.mutate({ job_ids: [job.id] })}>
                        Retry
                      </Button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </>
  )
}
