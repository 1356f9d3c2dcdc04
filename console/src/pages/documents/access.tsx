import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { changeAccess } from '../../api/documents.ts'
import type { DocumentInfo } from '../../api/types.ts'
import { namesOf } from '../../logic/uploads.ts'
import { Badge, Button, Failure, Field } from '../../ui/parts.tsx'

/** The access list of a document. */
export function Readers({ document }: { document: Pick<DocumentInfo, 'oids' | 'groups'> }) {
  if (!document.oids.length && !document.groups.length) return <Badge>the whole tenant</Badge>
  return (
    <>
      {document.oids.map((each) => (
        <Badge key={`user ${each}`} tone="accent">{each}</Badge>
      ))}{' '}
      {document.groups.map((each) => (
        <Badge key={`group ${each}`} tone="warn">group {each}</Badge>
      ))}
    </>
  )
}

/** The access list of a document, and a form that changes it. */
export function Access({ index, document, writes }: { index: string; document: DocumentInfo; writes: boolean }) {
  const queries = useQueryClient()
  const [shown, setShown] = useState(document)
  const [editing, setEditing] = useState(false)
  const [oids, setOids] = useState(document.oids.join(', '))
  const [groups, setGroups] = useState(document.groups.join(', '))
  const change = useMutation({
    mutationFn: () => changeAccess(index, document.document_id, namesOf(oids), namesOf(groups)),
    onSuccess: () => {
      setShown({ ...shown, oids: namesOf(oids), groups: namesOf(groups) })
      setEditing(false)
      return queries.invalidateQueries({ queryKey: ['documents'] })
    },
  })
  return (
    <section aria-label="Access list" className="access">
      <p>
        <span className="muted">Visible to</span> <Readers document={shown} />
        {writes && !editing && (
          <Button kind="quiet" icon="key" onClick={() => setEditing(true)}>
            Change
          </Button>
        )}
      </p>
      {editing && (
        <form
          className="fields"
          onSubmit={(event) => {
            event.preventDefault()
            change.mutate()
          }}
        >
          <div className="fields two">
            <Field label="Users" hint="User ids, separated by commas.">
              <input value={oids} onChange={(event) => setOids(event.target.value)} autoFocus />
            </Field>
            <Field label="Groups" hint="Without users and groups, all callers of the tenant may see the document.">
              <input value={groups} onChange={(event) => setGroups(event.target.value)} />
            </Field>
          </div>
          {change.error && <Failure error={change.error} />}
          <div className="actions">
            <Button disabled={change.isPending} onClick={() => setEditing(false)}>
              Cancel
            </Button>
            <Button kind="primary" type="submit" disabled={change.isPending}>
              {change.isPending ? 'Changing …' : 'Save'}
            </Button>
          </div>
        </form>
      )}
      {change.isSuccess && !editing && (
        <p className="notice good" role="status">
          {change.data.state === 'unchanged' ? 'The access list did not change.' : 'The access list has changed.'}
        </p>
      )}
    </section>
  )
}
