import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ago, bytes, milliseconds, score } from '../src/logic/format.ts'
import { highlighted, spansOf } from '../src/logic/highlight.ts'
import { turnsOf } from '../src/logic/history.ts'
import { eventsOf, linesOf } from '../src/logic/lines.ts'
import { base64url, challengeOf, randomText } from '../src/logic/pkce.ts'
import { messageOf, problemOf } from '../src/logic/problems.ts'
import { hashOf, may, pagesFor, placeOf } from '../src/logic/session.ts'
import { renewAt } from '../src/logic/token_life.ts'
import { startsNote, total, waterfall } from '../src/logic/waterfall.ts'

async function* pieces(text: string, size: number): AsyncGenerator<Uint8Array> {
  const all = new TextEncoder().encode(text)
  for (let start = 0; start < all.length; start += size) yield all.slice(start, start + size)
}

async function collected<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = []
  for await (const each of stream) found.push(each)
  return found
}

test('lines come whole wherever the bytes are split', async () => {
  const text = '{"a":"ü"}\n\n{"b":"😀"}\n{"c":1}'
  for (let size = 1; size <= text.length; size += 1) {
    assert.deepEqual(await collected(linesOf(pieces(text, size))), ['{"a":"ü"}', '{"b":"😀"}', '{"c":1}'])
  }
})

test('events have a name and data wherever the bytes are split', async () => {
  const text = ': still there\n\nevent: progress\nid: 4\ndata: {"a":1}\n\nevent: end\ndata: x\ndata: y\n\n'
  for (let size = 1; size <= text.length; size += 3) {
    assert.deepEqual(await collected(eventsOf(pieces(text, size))), [
      { event: 'progress', data: '{"a":1}' },
      { event: 'end', data: 'x\ny' },
    ])
  }
})

test('a waterfall puts each step where it began, and the parts of a step behind each other', () => {
  const steps = [
    { name: 'report on input', start_ms: 1, duration_ms: 50 },
    { name: 'retrieve', start_ms: 6, duration_ms: 40, steps: [{ name: 'embed', duration_ms: 24 }, { name: 'dense', duration_ms: 1 }] },
    { name: 'first token', start_ms: 49, duration_ms: 7 },
    { name: 'generate', start_ms: 48, duration_ms: 9 },
  ]
  const bars = waterfall(steps)
  const starts = Object.fromEntries(bars.map((each) => [each.name, each.start]))
  assert.deepEqual(starts, { 'report on input': 1, retrieve: 6, embed: 6, dense: 30, 'first token': 49, generate: 48 })
  assert.equal(total(bars), 57)
  assert.match(startsNote(steps), /measured. The parts of “Search” are drawn/)
  assert.equal(startsNote(steps.slice(2)), '')
})

test('the steps of an answer without start times are drawn behind each other, and the page says so', () => {
  const steps = [{ name: 'retrieve', duration_ms: 40 }, { name: 'generate', duration_ms: 8 }]
  assert.deepEqual(waterfall(steps).map((each) => each.start), [0, 40])
  assert.match(startsNote(steps), /were not stored/)
})

test('passages are found in a text with other blanks and marks', () => {
  const text = 'Intro.\nThe *largest*  task is\nthe renewal. End.'
  assert.deepEqual(
    highlighted(text, ['The largest task is the renewal.']).map((each) => [each.text, each.marked]),
    [['Intro.\n', false], ['The *largest*  task is\nthe renewal', true], ['. End.', false]],
  )
  assert.deepEqual(spansOf(text, ['short', 'nothing like this is here']), [])
})

test('the message of an error is found in the shape of each dialect', () => {
  for (const body of ['{"error":"no"}', '{"error":{"message":"no"}}', '{"detail":"no"}', '{"message":"no"}']) assert.equal(messageOf(body), 'no')
  for (const body of ['', '<html>', '3', 'null', '{"error":{}}']) assert.equal(messageOf(body), '')
  assert.match(problemOf(503, ''), /status 503.*try again/i)
  assert.equal(problemOf(503, '{"error":"The disk is full. Try again later."}'), 'The disk is full. Try again later.')
})

test('a role opens its pages, and an administrator all', () => {
  assert.ok(may(['admin'], 'ingest'))
  assert.ok(!may(['ask'], 'ingest'))
  assert.deepEqual(pagesFor([]), [])
  assert.equal(pagesFor(['admin']).length, pagesFor(['ask', 'ingest']).length)
})

test('a place survives its way through the address', () => {
  const place = placeOf(hashOf('ask', 'häfen/ä b', '%'))
  assert.deepEqual(place, { page: 'ask', rest: ['häfen/ä b', '%'] })
  assert.deepEqual(placeOf(''), { page: 'ask', rest: [] })
  assert.deepEqual(placeOf('#/%E0%A4%A'), { page: '%E0%A4%A', rest: [] })
})

test('a challenge is that of RFC 7636, and verifiers differ', async () => {
  assert.equal(await challengeOf('dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk'), 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM')
  assert.equal(base64url(Uint8Array.of(251, 255)), '-_8')
  assert.notEqual(randomText(), randomText())
  assert.match(randomText(), /^[\w-]{43}$/)
})

test('conversations of other clients are read, too', () => {
  const kept = { id: 's', answers: [['a', { message: { content: 'x' }, context: {} }], ['b', { output_text: 'y' }], ['c', 'z']] as [string, unknown][] }
  assert.deepEqual(turnsOf(kept).map((each) => each.answer.text), ['x', 'y', 'z'])
})

test('numbers have as many digits as say something', () => {
  assert.deepEqual([0.456, 12.34, 345.6, 1234, 12_345].map(milliseconds), ['0.46 ms', '12.3 ms', '346 ms', '1.23 s', '12.3 s'])
  assert.deepEqual([7, 1500, 123_456, 5_000_000].map(bytes), ['7 B', '1.5 KB', '123 KB', '5.0 MB'])
  assert.deepEqual([score(null), score(0.12345)], ['–', '0.123'])
  assert.equal(ago('2026-01-01T00:00:00Z', Date.parse('2026-01-01T00:05:00Z')), '5 min ago')
})

test('a token is renewed a minute before its end, or after most of a short life', () => {
  assert.deepEqual([3600, 120, 60, 4].map((seconds) => renewAt(1000, seconds) - 1000), [3_540_000, 90_000, 45_000, 3000])
})
