import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { submit } from '../../api/http.ts'
import type { IndexInfo } from '../../api/types.ts'
import { wrongFilter, yamlOf, type Side, type Tuning } from '../../logic/lab.ts'
import { useSettled } from '../../ui/hooks.ts'
import { Button, Failure, Field } from '../../ui/parts.tsx'

const DEBOUNCE_MS = 400

interface Props {
  side: Side
  title: string
  onChange: (side: Side) => void
}

/** The settings of one of the two searches. */
export function Settings({ side, title, onChange }: Props) {
  return (
    <>
      <header>
        <h2>{title}</h2>
        <span className="inline">
          <select aria-label={`Mode of ${title}`} value={side.mode} onChange={(event) => onChange({ ...side, mode: event.target.value as Side['mode'] })}>
            <option value="hybrid">hybrid</option>
            <option value="vectors">by meaning</option>
            <option value="text">by words</option>
          </select>
          <select aria-label={`Passages of ${title}`} value={side.top} onChange={(event) => onChange({ ...side, top: Number(event.target.value) })}>
            {[3, 5, 10, 20, 50].map((each) => (
              <option key={each} value={each}>
                {each} passages
              </option>
            ))}
          </select>
          <label className="check">
            <input type="checkbox" checked={side.rerank} onChange={(event) => onChange({ ...side, rerank: event.target.checked })} /> Rerank
          </label>
        </span>
      </header>
      <div className="lab-tuning">
        <HybridSettings side={side} title={title} onChange={onChange} />
        <Filter side={side} title={title} onChange={onChange} />
      </div>
    </>
  )
}

/** The settings that only a hybrid search has. */
function HybridSettings({ side, title, onChange }: Props) {
  const disabled = side.mode !== 'hybrid'
  const [weight, setWeight] = useState(side.dense_weight === null ? '' : String(side.dense_weight))
  return (
    <>
      <Field label="Fusion">
        <select aria-label={`Fusion of ${title}`} disabled={disabled} value={side.fusion ?? ''} onChange={(event) => onChange({ ...side, fusion: event.target.value || null })}>
          <option value="">setting of the index</option>
          <option value="scores">by scores</option>
          <option value="ranks">by ranks</option>
        </select>
      </Field>
      <Field label="Weight of meaning">
        <input
          type="number"
          aria-label={`Weight of meaning of ${title}`}
          disabled={disabled}
          min={0}
          max={1}
          step={0.05}
          value={weight}
          placeholder="setting of the index"
          onChange={(event) => {
            setWeight(event.target.value)
            const number = Number(event.target.value)
            if (event.target.value === '') onChange({ ...side, dense_weight: null })
            else if (number >= 0 && number <= 1) onChange({ ...side, dense_weight: number })
          }}
        />
      </Field>
      <Field label="Query expansion">
        <select
          aria-label={`Query expansion of ${title}`}
          disabled={disabled}
          value={side.expand === null ? '' : String(side.expand)}
          onChange={(event) => onChange({ ...side, expand: event.target.value === '' ? null : event.target.value === 'true' })}
        >
          <option value="">setting of the index</option>
          <option value="true">always</option>
          <option value="false">never</option>
        </select>
      </Field>
    </>
  )
}

function Filter({ side, title, onChange }: Props) {
  const [text, setText] = useState(side.filter)
  const settled = useSettled(text, DEBOUNCE_MS)
  const invalid = wrongFilter(settled)
  useEffect(() => {
    if (!invalid && settled !== side.filter) onChange({ ...side, filter: settled })
  }, [settled, invalid, side, onChange])
  return (
    <Field label="Filter by metadata" {...(invalid ? { hint: `“${invalid}” has no value. Write name=value.` } : {})}>
      <input aria-label={`Filter of ${title}`} aria-invalid={!!invalid} value={text} placeholder="team=deck, year=2024" spellCheck={false} onChange={(event) => setText(event.target.value)} />
    </Field>
  )
}

/** A form that saves the settings of a search in the index, or copies them as a front end profile. */
export function SaveSettings({ index, sides, canSave }: { index: IndexInfo; sides: [Side, Side]; canSave: boolean }) {
  const queries = useQueryClient()
  const [place, setPlace] = useState<0 | 1>(0)
  const { fusion, dense_weight, expand } = sides[place]
  // A setting that the search does not have keeps the value of the index.
  const tuning: Tuning = { fusion: fusion ?? index.fusion, dense_weight: dense_weight ?? index.dense_weight, expand: expand ?? index.expand }
  const save = useMutation({
    mutationFn: () => submit(`indexes/${encodeURIComponent(index.index_name)}`, tuning, 'PATCH'),
    onSuccess: () => Promise.all([queries.invalidateQueries({ queryKey: ['indexes'] }), queries.invalidateQueries({ queryKey: ['lab'] })]),
  })
  const yaml = yamlOf(index.index_name, tuning)
  return (
    <section className="lab-side" aria-label="Save the settings">
      <h2>Save the better settings</h2>
      <p className="muted fine">
        Save fusion, weight and query expansion as the settings of the index, or copy them as a front end profile. The index now has: {summaryOf(index)}.
      </p>
      <div className="lab-form">
        <div className="switch" role="group" aria-label="Settings to save">
          {(['A', 'B'] as const).map((name, which) => (
            <button key={name} type="button" aria-pressed={place === which} onClick={() => setPlace(which as 0 | 1)}>
              {name}
            </button>
          ))}
        </div>
        {canSave && (
          <Button disabled={save.isPending} onClick={() => save.mutate()}>
            Save as the settings of {index.index_name}
          </Button>
        )}
        <Button kind="quiet" icon="copy" onClick={() => void navigator.clipboard?.writeText(yaml)}>
          Copy the profile
        </Button>
      </div>
      {save.error && <Failure error={save.error} />}
      {save.isSuccess && (
        <p className="notice good" role="status">
          Saved. The next search uses these settings.
        </p>
      )}
      <pre className="yaml" tabIndex={0}>{yaml}</pre>
    </section>
  )
}

function summaryOf(index: IndexInfo): string {
  const fusion = index.fusion ? `fusion by ${index.fusion}` : "the platform's fusion"
  const weight = index.dense_weight === null ? "the platform's weight" : `weight ${index.dense_weight}`
  const words = index.expand === null ? "the platform's query expansion" : index.expand ? 'query expansion always' : 'no query expansion'
  return `${fusion}, ${weight}, ${words}`
}
