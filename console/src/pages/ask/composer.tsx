import { useEffect, useRef } from 'react'
import { Button } from '../../ui/parts.tsx'

interface Props {
  draft: string
  onDraft: (text: string) => void
  busy: boolean
  onAsk: (question: string) => void
  onStop: () => void
}

export function Composer({ draft, onDraft, busy, onAsk, onStop }: Props) {
  const field = useRef<HTMLTextAreaElement>(null)
  useEffect(() => field.current?.focus(), [])
  useEffect(() => {
    const box = field.current
    if (!box) return
    box.style.height = 'auto'
    box.style.height = `${Math.min(box.scrollHeight, 200)}px`
  }, [draft])
  const ready = draft.trim() !== '' && !busy
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault()
        if (ready) onAsk(draft.trim())
      }}
    >
      <textarea
        ref={field}
        rows={1}
        value={draft}
        placeholder="Ask your documents"
        aria-label="Question"
        onChange={(event) => onDraft(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault()
            if (ready) onAsk(draft.trim())
          }
          if (event.key === 'Escape' && busy) onStop()
        }}
      />
      {busy ? (
        <Button icon="stop" onClick={onStop} aria-label="Stop" />
      ) : (
        <Button kind="primary" type="submit" icon="send" disabled={!ready} aria-label="Ask" />
      )}
    </form>
  )
}
