import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BlockReader, type Block } from '../src/logic/blocks.ts'
import { LiveText } from '../src/logic/live.ts'

const blocksOf = (text: string, known: string[] = []): string[] => {
  const reader = new BlockReader()
  reader.read(text, known, true)
  return [...reader.settled, ...(reader.last ? [reader.last] : [])].map((each) => each.text)
}

/** Read a text in pieces. Return the blocks that the page would parse, each time it would parse them. */
function streamed(text: string, size: number, known: string[] = []): { parsed: Block[]; reader: BlockReader } {
  const reader = new BlockReader()
  const parsed: Block[] = []
  let seen = new Set<Block>()
  for (let end = size; ; end += size) {
    reader.read(text.slice(0, end), known, end >= text.length)
    const now = new Set(reader.last ? [...reader.settled, reader.last] : reader.settled)
    for (const each of now) if (!seen.has(each)) parsed.push(each)
    seen = now
    if (end >= text.length) return { parsed, reader }
  }
}

test('a text is split at blank lines outside of code', () => {
  assert.deepEqual(blocksOf('One.\n\nTwo'), ['One.\n\n', 'Two'])
  assert.deepEqual(blocksOf('```\na\n\nb\n```\n\nc'), ['```\na\n\nb\n```\n\n', 'c'])
  assert.deepEqual(blocksOf('````\n```\n\n~~~~~\n\n````\n\nd'), ['````\n```\n\n~~~~~\n\n````\n\n', 'd'])
  assert.deepEqual(blocksOf('```inline``` text\n\nb'), ['```inline``` text\n\n', 'b'])
  assert.deepEqual(blocksOf('\n\n'), [])
})

test('a list is one block, with the blank lines and the indented text in it', () => {
  assert.deepEqual(blocksOf('1. a\n\n   more\n\n2. b\n\n**After**'), ['1. a\n\n   more\n\n2. b\n\n', '**After**'])
  assert.deepEqual(blocksOf('- a\n\n---\n\nb'), ['- a\n\n', '---\n\n', 'b'])
  assert.deepEqual(blocksOf('A\n\n1 of 2'), ['A\n\n', '1 of 2'])
})

test('a text with definitions of links is one block, because they are valid for all of it', () => {
  assert.deepEqual(blocksOf('[x]\n\nText\n\n[x]: https://example.org'), ['[x]\n\nText\n\n[x]: https://example.org'])
})

test('the blocks of a complete text do not depend on the pieces in which it came', () => {
  const text = 'A [a.md] b.\n\n- x [b.md]\n\n- y\n\n12. z\n\n~~~\nd [a.md]\n\n~~~\n\n* e\n\n**f** [a.md] [unknown]'
  const known = ['a.md', 'b.md']
  const whole = new BlockReader()
  whole.read(text, known, true)
  for (const size of [1, 2, 3, 7, 50]) {
    const { reader } = streamed(text, size, known)
    assert.deepEqual([reader.settled, reader.last, reader.names], [whole.settled, whole.last, whole.names])
  }
  assert.deepEqual(whole.names, ['a.md', 'b.md'])
})

test('another text or other known sources start again', () => {
  const reader = new BlockReader()
  reader.read('One [a.md].\n\nTwo', ['a.md'], false)
  reader.read('Else', ['a.md'], true)
  assert.deepEqual([reader.settled, reader.last?.text, reader.names], [[], 'Else', []])
  reader.read('Else [b.md]', ['b.md'], true)
  assert.deepEqual(reader.names, ['b.md'])
})

test('a token makes the page parse one block, and a complete block is never parsed again', () => {
  const paragraph = `${'word '.repeat(60)}[a.md].\n\n`
  const tokens = (paragraph.length * 100) / 4
  const { parsed, reader } = streamed(paragraph.repeat(100), 4, ['a.md'])
  assert.ok(reader.settled.length >= 99)
  // One block per token, and each block once more when it is complete.
  assert.ok(parsed.length <= tokens + 100, `${parsed.length} blocks for ${tokens} tokens`)
  assert.ok(Math.max(...parsed.map((each) => each.text.length)) <= paragraph.length)
})

test('the work for one long block grows with its length, not with its square', () => {
  const characters = (items: number) => streamed(`- ${'word '.repeat(10)}\n`.repeat(items), 4).parsed.reduce((sum, each) => sum + each.text.length, 0)
  const [some, many] = [characters(250), characters(1000)]
  assert.ok(many < 8 * some, `${some} characters for 250 items, ${many} for 1000`)
})

test('the sources are the same array until a new one is cited', () => {
  const reader = new BlockReader()
  reader.read('A [a.md].\n\nB', ['a.md', 'b.md'], false)
  const { names } = reader
  reader.read('A [a.md].\n\nB again [a.md] and', ['a.md', 'b.md'], false)
  assert.equal(reader.names, names)
})

test('a thousand tokens in ten frames are told ten times, and the end cancels the frame that is due', () => {
  const due: (() => void)[] = []
  let cancelled = 0
  const live = new LiveText({ request: (run) => due.push(run), cancel: () => (cancelled += 1) })
  const told: number[] = []
  live.subscribe(() => told.push(live.shown().length))
  for (let token = 1; token <= 1000; token += 1) {
    live.update('x'.repeat(token))
    if (token % 100 === 0) for (const run of due.splice(0)) run()
  }
  assert.deepEqual(told, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000])
  live.update('more')
  live.end()
  assert.equal(cancelled, 1)
  assert.equal(due.length, 1)
})
