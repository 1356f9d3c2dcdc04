/** Formats numbers, sizes and times for users. */

/** Return a duration as text with three or four digits. */
export function milliseconds(value: number): string {
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`
  if (value >= 100) return `${value.toFixed(0)} ms`
  return `${value.toFixed(value >= 10 ? 1 : 2)} ms`
}

/** Return a number of bytes as text in a suitable unit. */
export function bytes(value: number): string {
  const units = ['B', 'KB', 'MB', 'GB']
  let unit = 0
  let rest = value
  while (rest >= 1000 && unit < units.length - 1) {
    rest /= 1000
    unit += 1
  }
  return `${unit === 0 || rest >= 100 ? rest.toFixed(0) : rest.toFixed(1)} ${units[unit]}`
}

/** Return a score with three decimal places, or a dash without a score. */
export function score(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–'
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(3)
}

/** Return a number with its noun. */
export function count(value: number, one: string, many = `${one}s`): string {
  return `${value.toLocaleString('en')} ${value === 1 ? one : many}`
}

/** Return the time since a moment as text. */
export function ago(moment: string, now: number = Date.now()): string {
  const seconds = Math.max(0, (now - Date.parse(moment)) / 1000)
  if (!Number.isFinite(seconds)) return ''
  if (seconds < 10) return 'just now'
  if (seconds < 60) return `${Math.floor(seconds)} s ago`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`
  return new Date(moment).toISOString().slice(0, 10)
}
