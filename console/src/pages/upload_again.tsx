import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { NO_LABELS, stored, upload, type Labels } from '../api/documents.ts'
import type { Job } from '../api/types.ts'
import { inPlaceOf, WHY_NO_RETRY } from '../logic/uploads.ts'
import { Button, Failure, Field, Loading, Panel } from '../ui/parts.tsx'

/** A form that uploads another version of a failed job's file. */
export function UploadAgain({ job, onClose }: { job: Job; onClose: () => void }) {
  const queries = useQueryClient()
  const [file, setFile] = useState<File | null>(null)
  const [changed, setLabels] = useState<Labels | null>(null)
  // The failed job has no access list, but an indexed version of the document has one.
  const earlier = useQuery({ queryKey: ['stored', job.index, job.document_id], queryFn: () => stored(job.index, job.document_id), staleTime: 0, retry: false })
  const labels = changed ?? (earlier.data ? { ...NO_LABELS, oids: earlier.data.oids.join(', '), groups: earlier.data.groups.join(', ') } : NO_LABELS)
  const send = useMutation({
    mutationFn: (chosen: File) => upload(job.index, [inPlaceOf(job.sourcefile, chosen)], labels),
    onSuccess: async () => {
      onClose()
      await queries.invalidateQueries({ queryKey: ['jobs'] })
    },
  })
  return (
    <Panel title={`Upload ${job.sourcefile} again`} open onClose={onClose} description={WHY_NO_RETRY}>
      {earlier.isPending && <Loading what="the access list" />}
      {earlier.error && <Failure error={earlier.error} retry={() => void earlier.refetch()} />}
      {!earlier.isPending && !earlier.error && (
        <form
          className="fields"
          onSubmit={(event) => {
            event.preventDefault()
            if (file) send.mutate(file)
          }}
        >
          <Field label="File" hint={`The file is added to the index ${job.index}. A file of the same type replaces ${job.sourcefile}.`}>
            <input type="file" required onChange={(event) => setFile(event.target.files?.[0] ?? null)} />
          </Field>
          <div className="fields two">
            <Field label="Users who may see the document" hint={earlier.data ? 'The list of the version in the index.' : 'The list of the failed upload was not stored.'}>
              <input value={labels.oids} onChange={(event) => setLabels({ ...labels, oids: event.target.value })} />
            </Field>
            <Field label="Groups" hint="Without users and groups, all callers of the tenant may see the document.">
              <input value={labels.groups} onChange={(event) => setLabels({ ...labels, groups: event.target.value })} />
            </Field>
          </div>
          {send.error && <Failure error={send.error} />}
          <div className="actions">
            <Button disabled={send.isPending} onClick={onClose}>
              Cancel
            </Button>
            <Button kind="primary" type="submit" disabled={!file || send.isPending}>
              {send.isPending ? 'Uploading …' : 'Upload'}
            </Button>
          </div>
        </form>
      )}
    </Panel>
  )
}
