import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Job } from '../src/api/types.ts'
import { filterOf, searchOf, wordsOf, wrongFilter, yamlOf, type Side } from '../src/logic/lab.ts'
import { measured, moves, questionsOf, rankOf } from '../src/logic/measures.ts'
import { batches, isOver, namesOf, ordered, sending, summary, warningsOf, withJob, wrongIndexName } from '../src/logic/uploads.ts'

const JOB: Job = {
  id: 'j', state: 'queued', stage: 'queued', percent: 0, index: 'i', document_id: 'd', sourcefile: 'a.pdf',
  progress: { pages_done: 0, pages_total: 0, chunks_done: 0, chunks_total: 0 },
  error: null, warnings: [], warning_count: 0, waiting_since: null, given_up: false, attempt: 1, created_at: '', updated_at: '', trace_id: '',
}

test('uploads that failed come first, then those that are being ingested, each in the order of their names', () => {
  const states = ['done', 'waiting', 'failed', 'reading', 'done', 'failed'] as const
  const uploads = states.map((state, number) => ({ ...sending(String(number), 0), state }))
  assert.deepEqual(ordered(uploads).map((each) => each.name), ['2', '5', '3', '1', '0', '4'])
})

test('an upload follows its job, and says why it failed or what is missing', () => {
  const begun = sending('a.pdf', 3)
  const states = (['queued', 'parsing', 'indexing', 'succeeded', 'unchanged', 'failed', 'cancelled'] as const).map((state) => withJob(begun, { ...JOB, state }).state)
  assert.deepEqual(states, ['waiting', 'reading', 'storing', 'done', 'unchanged', 'failed', 'cancelled'])
  assert.equal(withJob(begun, { ...JOB, state: 'failed', error: { reason: 'x', message: 'It is encrypted.' } }).reason, 'It is encrypted.')
  const warnings = [{ reason: 'w', message: 'No text.', page: 3, part: null }]
  const partly = withJob(begun, { ...JOB, state: 'succeeded', warnings, warning_count: 5 })
  assert.deepEqual([partly.state, partly.reason], ['partly', 'page 3: No text. And 4 more.'])
  assert.equal(warningsOf({ warnings, warning_count: 1 }), 'page 3: No text.')
  assert.ok(!isOver(begun) && isOver(partly))
  assert.equal(summary([begun, partly, { ...begun, state: 'failed' }]), '1 of 3 indexed, 1 partly read, 1 failed')
})

test('files go in groups of a bounded number and size, in order', () => {
  const files = Array.from({ length: 25 }, (_, place) => ({ place, size: place === 3 ? 60 : 1 }))
  const groups = batches(files, 10, 50)
  assert.deepEqual(groups.flat().map((each) => each.place), files.map((each) => each.place))
  for (const group of groups) {
    assert.ok(group.length <= 10)
    assert.ok(group.length === 1 || group.reduce((sum, each) => sum + each.size, 0) <= 50)
  }
})

test('the name of an index is that of the API', () => {
  for (const name of ['a', 'hand-book_1.2', 'x'.repeat(128)]) assert.equal(wrongIndexName(name), '')
  for (const name of ['', '-a', 'a b', 'ä', 'a/b', 'x'.repeat(129)]) assert.notEqual(wrongIndexName(name), '')
})

test('recall and mean reciprocal rank are those of the ranks', () => {
  const found = measured([1, 2, 0, 10])
  assert.deepEqual(found.recall, { 1: 0.25, 3: 0.5, 5: 0.5, 10: 0.75 })
  assert.equal(found.mrr, (1 + 0.5 + 0.1) / 4)
  assert.equal(measured([]).mrr, 0)
  assert.equal(rankOf({ question: '', pages: ['b', 'c'] }, ['a', 'b', 'c']), 2)
  assert.deepEqual(moves(['a', 'b'], ['b']), [0, 1])
})

test('a file of questions is read whole, or refused with the line', () => {
  assert.deepEqual(questionsOf('{"question":"q","sourcepage":"a"}\n\n{"question":"r","sourcepages":["b","c"]}\n'), [
    { question: 'q', pages: ['a'] },
    { question: 'r', pages: ['b', 'c'] },
  ])
  assert.throws(() => questionsOf('{"question":"q","sourcepage":"a"}\nno'), /Line 2/)
  assert.throws(() => questionsOf('{"question":"q"}'), /Line 1 must have/)
  assert.throws(() => questionsOf('null'), /Line 1|null/)
  assert.throws(() => questionsOf(' '), /no question/)
})

test('what is copied is the YAML of a profile', () => {
  assert.equal(yamlOf('handbook', { fusion: 'ranks', dense_weight: 0.3, expand: null }), 'frontends:\n  - name: help\n    mount: help\n    index: "handbook"\n    retrieval:\n      fusion: ranks\n      dense_weight: 0.3\n')
  assert.doesNotMatch(yamlOf('a', { fusion: null, dense_weight: null, expand: null }), /retrieval/)
})

test('words of the query are marked in other forms, too', () => {
  assert.deepEqual(wordsOf('Two bearings of it.', 'the bearing').map((each) => [each.text, each.marked]), [['Two ', false], ['bearings', true], [' of it.', false]])
  assert.deepEqual(wordsOf('a', '?'), [{ text: 'a', marked: false }])
})

test('names of readers come with commas between them, each once', () => {
  assert.deepEqual(namesOf(' ann, bob,,ann ,crew of deck'), ['ann', 'bob', 'crew of deck'])
  assert.deepEqual(namesOf(' , '), [])
})

test('a search of the lab says what its side has, and leaves the rest to the index', () => {
  const side: Side = { mode: 'hybrid', rerank: false, top: 5, fusion: 'ranks', dense_weight: 0, expand: null, filter: 'team=deck, year = 2024, open=true, code="07"' }
  const body = searchOf('i', 'q', side)
  assert.deepEqual([body.fusion, body.dense_weight, body.expand], ['ranks', 0, null])
  assert.deepEqual(body.metadata_filter, { team: 'deck', year: 2024, open: true, code: '07' })
  assert.ok(!('fusion' in searchOf('i', 'q', { ...side, mode: 'text' })))
  assert.deepEqual(filterOf(' , '), {})
  assert.deepEqual(['', 'a=1', 'a=', 'a', '=1', 'a=1, b'].map(wrongFilter), ['', '', '', 'a', '=1', 'b'])
})
