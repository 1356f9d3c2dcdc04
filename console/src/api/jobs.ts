/** Jobs of the gateway. */

import { eventsOf } from '../logic/lines.ts'
import { get, send } from './http.ts'
import type { Job } from './types.ts'

const RUNNING = ['queued', 'parsing', 'indexing']
const PAUSE = 1000
const MOST_STREAMS = 4
const MOST_LISTED = 1000

let streams = 0

/** The jobs that are followed together, by id. */
const listed = new Map<string, (job: Job) => void>()
let listing = false

/**
 * Report the changes of a job until it ends.
 *
 * Browsers open six connections to a host, and other requests need some of them. The first jobs are followed by their
 * events; all other jobs are followed together, by the list of jobs.
 */
export async function follow(job: Job, tell: (job: Job) => void, signal?: AbortSignal): Promise<void> {
  let now = job
  const told = (next: Job) => {
    now = next
    tell(next)
  }
  while (RUNNING.includes(now.state) && !signal?.aborted) {
    if (streams >= MOST_STREAMS) {
      await listedUntilEnd(now.id, told, signal)
      continue
    }
    streams += 1
    try {
      const response = await send(`jobs/${now.id}/events`, { signal: signal ?? null })
      if (response.body) {
        for await (const { event, data } of eventsOf(response.body)) {
          if (event === 'progress' || event === 'end') told(JSON.parse(data) as Job)
        }
      }
    } catch {
      // The gateway does not answer, or the user left the page. The next round shows which.
    } finally {
      streams -= 1
    }
    if (RUNNING.includes(now.state) && !signal?.aborted) await pause()
  }
}

function listedUntilEnd(id: string, tell: (job: Job) => void, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      listed.delete(id)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    signal?.addEventListener('abort', end)
    listed.set(id, (job) => {
      tell(job)
      if (!RUNNING.includes(job.state)) end()
    })
    if (!listing) void list()
  })
}

async function list(): Promise<void> {
  listing = true
  while (listed.size) {
    await pause()
    try {
      // The jobs that changed last are first. The oldest followed job is asked for by its id, in case it is not listed.
      const [first] = listed.keys()
      const page = await get<{ jobs: Job[] }>(`jobs?limit=${Math.min(MOST_LISTED, 50 + listed.size)}`)
      for (const job of page.jobs) listed.get(job.id)?.(job)
      const oldest = first === undefined ? undefined : listed.get(first)
      if (first !== undefined && oldest) {
        // It moves to the end, so that each job gets its turn.
        listed.delete(first)
        listed.set(first, oldest)
        oldest(await get<Job>(`jobs/${first}`))
      }
    } catch {
      // The gateway does not answer. The next round tries again.
    }
  }
  listing = false
}

function pause(): Promise<void> {
  return new Promise((done) => setTimeout(done, PAUSE))
}
