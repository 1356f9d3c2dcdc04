/** Components that all pages share. */

import * as Dialog from '@radix-ui/react-dialog'
import type { ButtonHTMLAttributes, ReactNode } from 'react'
import { ApiError } from '../api/http.ts'
import { Icon, type IconName } from './icon.tsx'

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: 'plain' | 'primary' | 'quiet' | 'danger'
  icon?: IconName
}

export function Button({ kind = 'plain', icon, children, className = '', ...rest }: ButtonProps) {
  return (
    <button type="button" className={`button ${kind} ${children ? '' : 'bare'} ${className}`} {...rest}>
      {icon && <Icon name={icon} />}
      {children && <span>{children}</span>}
    </button>
  )
}

/** Show that data is loading. */
export function Loading({ what }: { what: string }) {
  return (
    <p className="loading" role="status">
      <span className="spinner" aria-hidden="true" /> Loading {what} …
    </p>
  )
}

/** Show an error, with a button to try again. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const trace = error instanceof ApiError ? error.traceId : ''
  return (
    <div className="notice bad" role="alert">
      <Icon name="alert" />
      <div>
        <p>{error instanceof Error ? error.message : String(error)}</p>
        {trace && (
          <p className="fine">
            Trace <code>{trace}</code>
          </p>
        )}
      </div>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  )
}

/** Show that a list is empty, with advice for the user. */
export function Empty({ title, children, icon = 'documents' }: { title: string; children?: ReactNode; icon?: IconName }) {
  return (
    <div className="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  )
}

interface PanelProps {
  title: string
  open: boolean
  onClose: () => void
  children: ReactNode
  wide?: boolean
  description?: string
}

/**
 * A dialog over the page.
 *
 * It has its own overlay, because the library's overlay needs inline styles, which the content security policy forbids.
 */
export function Panel({ title, open, onClose, children, wide = false, description }: PanelProps) {
  return (
    <Dialog.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Dialog.Portal>
        <div className="overlay" aria-hidden="true" />
        <Dialog.Content className={`dialog ${wide ? 'wide' : ''}`} {...(description ? {} : { 'aria-describedby': undefined })}>
          <div className="dialog-head">
            <Dialog.Title>{title}</Dialog.Title>
            <Dialog.Close asChild>
              <Button kind="quiet" icon="close" aria-label="Close" />
            </Dialog.Close>
          </div>
          {description && <Dialog.Description className="fine">{description}</Dialog.Description>}
          {children}
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  )
}

/** A form field with a label above it. */
export function Field({ label, hint, children }: { label: string; hint?: string; children: ReactNode }) {
  return (
    <label className="field">
      <span>{label}</span>
      {children}
      {hint && <small>{hint}</small>}
    </label>
  )
}

/** A bar for a number between 0 and 1. */
export function Meter({ share, label }: { share: number; label: string }) {
  return <progress className="meter" max={1} value={Math.min(1, Math.max(0, share))} aria-label={label} />
}

/** A short text with the colour of a state. */
export function Badge({ tone = 'plain', children }: { tone?: 'plain' | 'good' | 'bad' | 'warn' | 'accent'; children: ReactNode }) {
  return <span className={`badge ${tone}`}>{children}</span>
}
