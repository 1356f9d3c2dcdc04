import assert from 'node:assert/strict'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { follow } from '../src/api/jobs.ts'
import type { Job } from '../src/api/types.ts'
import { inPlaceOf, needsFile } from '../src/logic/uploads.ts'

const job = (id: string, state: Job['state']): Job => ({ id, state, given_up: false, error: null }) as Job
const usual = globalThis.fetch

beforeEach(() => {
  Object.assign(globalThis, { document: { baseURI: 'http://console.test/' } })
  mock.timers.enable({ apis: ['setTimeout'] })
})
afterEach(() => {
  mock.timers.reset()
  globalThis.fetch = usual
})

/** Let all promises that are due go on. */
const settle = async () => {
  for (let round = 0; round < 50; round += 1) await new Promise((go) => setImmediate(go))
}

test('hundreds of jobs are followed by four streams and two requests a second', async () => {
  const states = new Map<string, Job['state']>()
  let requests: string[] = []
  globalThis.fetch = (async (url: string, init: RequestInit) => {
    const { pathname } = new URL(url)
    requests.push(pathname)
    if (pathname.endsWith('/events')) return new Promise((_, refuse) => init.signal?.addEventListener('abort', () => refuse(new Error('left'))))
    const one = pathname.match(/^\/jobs\/(.+)$/)?.[1]
    // The list leaves out the job that is asked for by its id.
    const body = one ? job(one, states.get(one) ?? 'queued') : { jobs: [...states].filter(([id]) => id !== '4').map(([id, state]) => job(id, state)) }
    return new Response(JSON.stringify(body))
  }) as typeof fetch
  const leave = new AbortController()
  const ended: string[] = []
  for (let number = 0; number < 300; number += 1) {
    const id = String(number)
    states.set(id, 'queued')
    void follow(job(id, 'queued'), () => undefined, leave.signal).then(() => ended.push(id))
  }
  await settle()
  assert.equal(requests.length, 4)
  requests = []
  for (let second = 0; second < 5; second += 1) {
    mock.timers.tick(1000)
    await settle()
  }
  assert.equal(requests.length, 10)
  assert.deepEqual(ended, [])
  for (const id of states.keys()) states.set(id, 'succeeded')
  for (let second = 0; second < 295; second += 1) {
    mock.timers.tick(1000)
    await settle()
    if (ended.length === 296) break
  }
  assert.equal(ended.length, 296)
  leave.abort()
  mock.timers.tick(1000)
  await settle()
  assert.equal(ended.length, 300)
})

test('only a job that failed because of its file needs the file again', () => {
  const failed = (reason: string, given_up = false) => ({ state: 'failed' as const, given_up, error: { reason, message: '' } })
  assert.ok(needsFile(failed('UNREADABLE_DOCUMENT')))
  assert.ok(!needsFile(failed('UNREADABLE_DOCUMENT', true)))
  assert.ok(!needsFile(failed('STALE_GENERATION')))
  assert.ok(!needsFile({ ...failed('UNREADABLE_DOCUMENT'), state: 'succeeded' }))
})

test('a file takes the name of the document that it replaces if it has the same type', () => {
  assert.equal(inPlaceOf('folder/plan.PDF', new File(['x'], 'plan-mended.pdf')).name, 'folder/plan.PDF')
  assert.equal(inPlaceOf('plan.pdf', new File(['x'], 'plan.docx')).name, 'plan.docx')
  assert.equal(inPlaceOf('https://example.org/plan.pdf', new File(['x'], 'plan.pdf')).name, 'plan.pdf')
})
