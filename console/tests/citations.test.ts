import assert from 'node:assert/strict'
import { test } from 'node:test'
import { numbered, parts, passagesOfFile, restored, settled, sourceOf } from '../src/logic/citations.ts'

test('citations of known sources get numbers in the order of their first use', () => {
  const cited = numbered('One [b.md]. Two [a.pdf#page=2][b.md].', ['a.pdf#page=2', 'b.md'])
  assert.deepEqual(cited.names, ['b.md', 'a.pdf#page=2'])
  assert.deepEqual(parts(cited.text), ['One', 1, '. Two', 2, 1, '.'])
})

test('brackets that name no source stay, and so do links', () => {
  const cited = numbered('See [this] and [a.md](https://example.org).', ['a.md'])
  assert.equal(cited.text, 'See [this] and [a.md](https://example.org).')
  assert.deepEqual(cited.names, [])
})

test('a model cannot write the marks itself', () => {
  const cited = numbered('\uE0001\uE001 [a.md]', ['a.md'])
  assert.deepEqual(parts(cited.text), ['1', 1])
})

test('code shows the name of a source again', () => {
  const cited = numbered('`x [a.md]`', ['a.md'])
  assert.equal(restored(cited.text, cited.names), '`x[a.md]`')
})

test('the beginning of a citation is not shown while it comes', () => {
  assert.equal(settled('Done [guide.pd'), 'Done')
  assert.equal(settled('Done [guide.pdf] and'), 'Done [guide.pdf] and')
})

test('a citation names a file and a page', () => {
  assert.deepEqual(sourceOf('a#b.pdf#page=12'), { file: 'a#b.pdf', page: 12 })
  assert.deepEqual(sourceOf('notes.md'), { file: 'notes.md', page: null })
})

test('a citation has the passages of its file, also if the name is encoded', () => {
  const passages = [{ sourcepage: 'C%23.pdf#page=2' }, { sourcepage: 'C%23.pdf#page=3' }, { sourcepage: 'What now%3F.md' }]
  assert.deepEqual(passagesOfFile(passages, sourceOf('C%23.pdf#page=2').file), passages.slice(0, 2))
  assert.deepEqual(passagesOfFile(passages, 'What now%3F.md'), passages.slice(2))
})
