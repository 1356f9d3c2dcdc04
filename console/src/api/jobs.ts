/** Jobs of the gateway. */

import { eventsOf } from '../logic/lines.ts'
import { get, send } from './http.ts'
import type { Job } from './types.ts'

const RUNNING = ['queued', 'parsing', 'indexing']
const PAUSE = 1000
const MOST_STREAMS = 4

let streams = 0

/**
 * Tell a job's changes until it is over.
 *
 * A few jobs are followed by their events. Browsers open six connections to a host, which other requests need, too: the
 * other jobs are asked for.
 */
export async function follow(job: Job, tell: (job: Job) => void, signal?: AbortSignal): Promise<void> {
  let now = job
  while (RUNNING.includes(now.state) && !signal?.aborted) {
    try {
      if (streams < MOST_STREAMS) {
        streams += 1
        try {
          const response = await send(`jobs/${now.id}/events`, { signal: signal ?? null })
          if (response.body) {
            for await (const { event, data } of eventsOf(response.body)) {
              if (event !== 'progress' && event !== 'end') continue
              now = JSON.parse(data) as Job
              tell(now)
            }
          }
        } finally {
          streams -= 1
        }
      } else {
        now = await get<Job>(`jobs/${now.id}`, signal)
        tell(now)
      }
    } catch {
      // The gateway is away for a while, or the page is left: the next round tells.
    }
    if (RUNNING.includes(now.state) && !signal?.aborted) await new Promise((done) => setTimeout(done, PAUSE))
  }
}
