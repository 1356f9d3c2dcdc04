/** Icons of 16 by 16 pixels, as SVG paths. */

const PATHS = {
  ask: 'M2.5 3.5h11v7.5h-6l-3 2.5v-2.5h-2z',
  documents: 'M4 1.5h5.5L12.5 4.5v10H4zM9.5 1.5v3h3M6 8h4.5M6 11h4.5',
  lab: 'M6 1.5h4M6.5 1.5v4.5L3 13a1 1 0 0 0 1 1.5h8a1 1 0 0 0 1-1.5L9.5 6V1.5M5 10h6',
  jobs: 'M2 4h8M2 8h12M2 12h5',
  close: 'M4 4l8 8M12 4l-8 8',
  send: 'M8 13V3M4 7l4-4 4 4',
  stop: 'M4.5 4.5h7v7h-7z',
  again: 'M13 8a5 5 0 1 1-1.5-3.5M13 2v3h-3',
  edit: 'M3 13l.5-2.5L11 3l2 2-7.5 7.5z',
  plus: 'M8 3v10M3 8h10',
  trash: 'M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.5 9h6l.5-9',
  alert: 'M8 2l6.5 11.5h-13zM8 6.5v3M8 11.5v.2',
  check: 'M3 8.5l3.5 3.5L13 4.5',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3.5 3.5',
  settings: 'M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M9 3v3h3V3zM4 10v3h3v-3z',
  history: 'M8 4.5V8l2.5 1.5M2.5 8a5.5 5.5 0 1 0 1.5-3.800M2.5 2v3h3',
  how: 'M2 13V9M6 13V5M10 13V7M14 13V2.5',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  moon: 'M13.5 9.5A6 6 0 1 1 6.5 2.5a5 5 0 0 0 7 7z',
  key: 'M10.5 9a3.5 3.5 0 1 0-3.300-2.300L2 12v2h2v-1.5h1.5V11H7l1.200-1.200A3.5 3.5 0 0 0 10.5 9zM11 5v.1',
  leave: 'M6 2H2.5v12H6M10.5 11l3-3-3-3M13.5 8H6',
  upload: 'M8 11V3M4.5 6.5L8 3l3.5 3.5M2.5 11v2.5h11V11',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  menu: 'M2 4h12M2 8h12M2 12h12',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" strokeWidth="1.4" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  )
}
