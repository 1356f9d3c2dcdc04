import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ended, findingsOf, EMPTY_ANSWER, passagesOf, promptOf, queryOf, stepsOf, usageOf, withLine, type Answer } from '../src/logic/answer.ts'

const FIRST = { type: 'response.context', context: { data_points: { text: [], images: [], citations: ['a.md'] }, thoughts: [] }, session_state: 's1' }
const LAST = {
  type: 'response.context',
  context: {
    thoughts: [
      { title: 'Generated search query', description: 'ferry times', props: { mode: 'hybrid' } },
      { title: 'Results', description: [{ id: 'p1', sourcepage: 'a.md' }], props: {} },
      { title: 'Prompt', description: [{ role: 'user', content: 'When?' }, 'said'], props: {} },
      { title: 'Answer', description: 'stop', props: { steps: [{ name: 'retrieve', duration_ms: 3 }], token_usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 } } },
    ],
  },
}
const grown = (...lines: object[]): Answer => lines.reduce((answer: Answer, line) => withLine(answer, JSON.stringify(line)), EMPTY_ANSWER)

test('an answer grows by its lines and is done after its last context', () => {
  const answer = ended(grown(FIRST, { delta: 'At ' }, { delta: 'nine.' }, LAST))
  assert.equal(answer.state, 'done')
  assert.equal(answer.text, 'At nine.')
  assert.equal(answer.sessionState, 's1')
  assert.deepEqual(answer.context.data_points?.citations, ['a.md'])
  assert.equal(queryOf(answer.context), 'ferry times')
  assert.equal(passagesOf(answer.context).length, 1)
  assert.deepEqual(promptOf(answer.context).map((each) => each.content), ['When?', 'said'])
  assert.equal(stepsOf(answer.context).length, 1)
  assert.equal(usageOf(answer.context).answer?.total_tokens, 7)
})

test('a stream that ends early has failed, and keeps what had come', () => {
  const answer = ended(grown(FIRST, { delta: 'At ' }))
  assert.equal(answer.state, 'failed')
  assert.equal(answer.text, 'At ')
  assert.match(answer.error, /connection broke/)
})

test('an error of the stream and a line that is no JSON end the answer', () => {
  assert.equal(grown(FIRST, { error: 'The model is away.' }).error, 'The model is away.')
  assert.equal(withLine(EMPTY_ANSWER, '<html>').state, 'failed')
})

test('an answer that was stopped stays stopped', () => {
  assert.equal(ended({ ...EMPTY_ANSWER, state: 'stopped', text: 'At' }).state, 'stopped')
})

test('findings are listed with their spans in the order in which texts are judged', () => {
  const one = { start: 1, end: 4, text: 'pin', detection: 'custom_regex', detection_type: 'regex', detector_id: 'regex', score: 1 }
  const found = findingsOf({ output: [{ choice_index: 0, results: [one] }], input: [{ message_index: 0, results: [{ ...one, detection: '' }] }] })
  assert.deepEqual(found.map((each) => [each.where, each.name, each.start, each.end]), [['question', 'regex', 1, 4], ['answer', 'custom_regex', 1, 4]])
})
