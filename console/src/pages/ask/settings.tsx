import { useQuery } from '@tanstack/react-query'
import type { ChatSettings } from '../../api/chat.ts'
import { get } from '../../api/http.ts'
import type { IndexInfo, Me } from '../../api/types.ts'
import { Field, Panel } from '../../ui/parts.tsx'

interface Props {
  open: boolean
  me: Me
  indexes: IndexInfo[]
  index: string
  settings: ChatSettings
  onChange: (settings: ChatSettings) => void
  onClose: () => void
}

export function SettingsPanel({ open, me, indexes, index, settings, onChange, onClose }: Props) {
  const models = useQuery({ queryKey: ['models'], queryFn: () => get<{ data: { id: string }[] }>('v1/models'), enabled: open })
  const set = (change: Partial<ChatSettings>) => onChange({ ...settings, ...change })
  const names = (models.data?.data ?? []).map((each) => each.id).filter((each) => !me.assistants.includes(each))
  return (
    <Panel title="Settings of the next question" open={open} onClose={onClose}>
      <div className="fields">
        {me.assistants.length > 0 && (
          <Field label="Assistant">
            <select value={settings.assistant} onChange={(event) => set({ assistant: event.target.value })}>
              <option value="">none</option>
              {me.assistants.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </Field>
        )}
        <Field label="Index">
          <select value={index} disabled={!!settings.assistant} onChange={(event) => set({ index: event.target.value })}>
            {!indexes.some((each) => each.index_name === index) && <option value={index}>{index || `${me.default_index} (default)`}</option>}
            {indexes.map((each) => (
              <option key={each.index_name} value={each.index_name}>
                {each.index_name} ({each.documents})
              </option>
            ))}
          </select>
        </Field>
        <Field label="Model">
          <select value={settings.model} disabled={!!settings.assistant} onChange={(event) => set({ model: event.target.value })}>
            <option value="">default model</option>
            {names.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </Field>
        <Field label="Search">
          <select value={settings.mode} onChange={(event) => set({ mode: event.target.value })}>
            <option value="hybrid">hybrid: by meaning and by words</option>
            <option value="vectors">vectors: by meaning</option>
            <option value="text">text: by words</option>
          </select>
        </Field>
        <Field label="Passages">
          <input type="number" min={1} max={50} value={settings.top} onChange={(event) => set({ top: Math.min(50, Math.max(1, Number(event.target.value) || 1)) })} />
        </Field>
        <label className="check">
          <input type="checkbox" checked={settings.rewrite} onChange={(event) => set({ rewrite: event.target.checked })} /> The model writes the search query
        </label>
        <label className="check">
          <input type="checkbox" checked={settings.rerank} onChange={(event) => set({ rerank: event.target.checked })} /> Rerank the passages
        </label>
        <label className="check">
          <input type="checkbox" checked={settings.followUps} onChange={(event) => set({ followUps: event.target.checked })} /> Suggest follow-up questions
        </label>
      </div>
    </Panel>
  )
}
