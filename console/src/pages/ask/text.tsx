import { memo, useCallback, useMemo, useRef, useSyncExternalStore } from 'react'
import { BlockReader, type Block } from '../../logic/blocks.ts'
import { sourceOf } from '../../logic/citations.ts'
import type { LiveText } from '../../logic/live.ts'
import { Citation, markdown } from '../../logic/markdown.ts'

interface Props {
  /** The complete text, or the text before the answer failed. */
  text: string
  /** The growing text. Null if the text is complete. */
  live: LiveText | null
  known: readonly string[]
  onSource: (name: string) => void
}

const NEVER = () => () => undefined

/** The text of an answer. A growing text renders once per animation frame, without the rest of the page. */
export function AnswerText({ text: completeText, live, known, onSource }: Props) {
  const text = useSyncExternalStore(live?.subscribe ?? NEVER, live?.shown ?? (() => completeText))
  const complete = !live
  const reader = useRef<BlockReader>(null)
  const { settled, last, names } = useMemo(() => {
    const blocks = (reader.current ??= new BlockReader())
    blocks.read(text, known, complete)
    return { settled: blocks.settled, last: blocks.last, names: blocks.names }
  }, [text, known, complete])
  const above = useMemo(() => settled.map((block, place) => <BlockView key={place} block={block} onSource={onSource} />), [settled, settled.length])
  return (
    <>
      <div className="prose">
        {above}
        {last && <BlockView key={settled.length} block={last} onSource={onSource} />}
      </div>
      <Sources names={names} onSource={onSource} />
    </>
  )
}

// The comparison ignores `onSource`. Each render of the page creates it again, but it does the same.
const BlockView = memo(
  function BlockView({ block, onSource }: { block: Block; onSource: (name: string) => void }) {
    const citation = useCallback(
      (number: number) => {
        const name = block.names[number - 1]
        if (!name) return null
        return (
          <button type="button" className="cite" title={name} aria-label={`Source ${number}: ${name}`} onClick={() => onSource(name)}>
            {number}
          </button>
        )
      },
      [block.names],
    )
    return <Citation value={citation}>{markdown(block.text, block.names)}</Citation>
  },
  (before, after) => before.block === after.block,
)

const Sources = memo(
  function Sources({ names, onSource }: { names: readonly string[]; onSource: (name: string) => void }) {
    if (!names.length) return null
    return (
      <ol className="sources" aria-label="Sources">
        {names.map((name) => {
          const source = sourceOf(name)
          return (
            <li key={name}>
              <button type="button" onClick={() => onSource(name)}>
                {source.file}
                {source.page !== null && <small>page {source.page}</small>}
              </button>
            </li>
          )
        })}
      </ol>
    )
  },
  (before, after) => before.names === after.names,
)
