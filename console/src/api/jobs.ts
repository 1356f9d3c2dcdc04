/** Follows jobs of the gateway. */

import { eventsOf } from '../logic/lines.ts'
import { get, send } from './http.ts'
import type { Job } from './types.ts'

const RUNNING = ['queued', 'parsing', 'indexing']
const PAUSE_MS = 1000
const MAX_STREAMS = 4
const MAX_LISTED = 1000

let streams = 0

/** Callbacks of the jobs that are followed by polling, by id. */
const polled = new Map<string, (job: Job) => void>()
let polling = false

/**
 * Report the changes of a job until it ends.
 *
 * Browsers open at most six connections to a host, and other requests need some of them. So only a few jobs are
 * followed by their streams of events. All other jobs are followed together, by polling the list of jobs.
 */
export async function follow(job: Job, report: (job: Job) => void, signal?: AbortSignal): Promise<void> {
  let current = job
  const update = (next: Job) => {
    current = next
    report(next)
  }
  while (RUNNING.includes(current.state) && !signal?.aborted) {
    if (streams >= MAX_STREAMS) {
      await polledUntilEnd(current.id, update, signal)
      continue
    }
    streams += 1
    try {
      const response = await send(`jobs/${current.id}/events`, { signal: signal ?? null })
      if (response.body) {
        for await (const { event, data } of eventsOf(response.body)) {
          if (event === 'progress' || event === 'end') update(JSON.parse(data) as Job)
        }
      }
    } catch {
      // The gateway does not respond, or the user left the page. The loop checks both.
    } finally {
      streams -= 1
    }
    if (RUNNING.includes(current.state) && !signal?.aborted) await pause()
  }
}

function polledUntilEnd(id: string, report: (job: Job) => void, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      polled.delete(id)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    signal?.addEventListener('abort', end)
    polled.set(id, (job) => {
      report(job)
      if (!RUNNING.includes(job.state)) end()
    })
    if (!polling) void poll()
  })
}

async function poll(): Promise<void> {
  polling = true
  while (polled.size) {
    await pause()
    try {
      // The list begins with the most recently changed jobs. The first followed job may not be in it.
      const [first] = polled.keys()
      const page = await get<{ jobs: Job[] }>(`jobs?limit=${Math.min(MAX_LISTED, 50 + polled.size)}`)
      for (const job of page.jobs) polled.get(job.id)?.(job)
      const oldest = first === undefined ? undefined : polled.get(first)
      if (first !== undefined && oldest) {
        // Move the job to the end, so that the next round requests another one.
        polled.delete(first)
        polled.set(first, oldest)
        oldest(await get<Job>(`jobs/${first}`))
      }
    } catch {
      // The gateway does not respond. The next round tries again.
    }
  }
  polling = false
}

function pause(): Promise<void> {
  return new Promise((done) => setTimeout(done, PAUSE_MS))
}
