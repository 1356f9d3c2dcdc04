import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { get, send } from '../../api/http.ts'
import { ago } from '../../logic/format.ts'
import { turnsOf, type StoredConversation } from '../../logic/history.ts'
import { Button, Failure, Loading, Panel } from '../../ui/parts.tsx'
import type { Turn } from './page.tsx'

interface Session {
  id: string
  title: string
  timestamp: number
}

interface Props {
  open: boolean
  onClose: () => void
  onOpen: (turns: Omit<Turn, 'live'>[]) => void
}

export function History({ open, onClose, onOpen }: Props) {
  const queries = useQueryClient()
  const [failed, setFailed] = useState<unknown>(null)
  const sessions = useQuery({
    queryKey: ['history'],
    queryFn: () => get<{ sessions: Session[] }>('chat_history/sessions?count=50'),
    enabled: open,
    staleTime: 0,
  })
  const path = (id: string) => `chat_history/sessions/${encodeURIComponent(id)}`
  const load = async (id: string) => {
    try {
      onOpen(turnsOf(await get<StoredConversation>(path(id))))
    } catch (error) {
      setFailed(error)
    }
  }
  const remove = async (id: string) => {
    try {
      await send(path(id), { method: 'DELETE' })
      await queries.invalidateQueries({ queryKey: ['history'] })
    } catch (error) {
      setFailed(error)
    }
  }
  return (
    <Panel title="Conversations" open={open} onClose={onClose}>
      {sessions.isPending && <Loading what="the conversations" />}
      {sessions.error && <Failure error={sessions.error} retry={() => void sessions.refetch()} />}
      {failed !== null && <Failure error={failed} />}
      {sessions.data?.sessions.length === 0 && <p className="muted">There are no conversations yet. A conversation is stored after its first answer.</p>}
      <ul className="rows">
        {sessions.data?.sessions.map((each) => (
          <li key={each.id}>
            <button type="button" className="link grow" onClick={() => void load(each.id)}>
              {each.title || each.id}
            </button>
            <small className="muted">{ago(new Date(each.timestamp).toISOString())}</small>
            <Button kind="quiet" icon="trash" aria-label={`Delete ${each.title}`} onClick={() => void remove(each.id)} />
          </li>
        ))}
      </ul>
    </Panel>
  )
}
