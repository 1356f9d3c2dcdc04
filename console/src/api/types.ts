/** The responses of the gateway's HTTP API (docs/protocols.md, /openapi.json). */

export interface Me {
  tenant: string
  user: string
  roles: Role[]
  /** Assistants of the front end that the caller may use. */
  assistants: string[]
  default_index: string
  /** Whether the platform fetches documents from URLs. */
  ingest_urls: boolean
}

export type Role = 'ask' | 'ingest' | 'admin'

export interface Login {
  useLogin: boolean
  msalConfig: { auth: { clientId: string; authority: string } }
  tokenRequest: { scopes: string[] }
}

export interface IndexInfo {
  index_name: string
  embedding: string | null
  chunk_tokens: number | null
  chunk_overlap: number | null
  fusion: string | null
  dense_weight: number | null
  expand: boolean | null
  language: string | null
  ocr: string | null
  documents: number
  chunks: number
}

export interface DocumentInfo {
  document_id: string
  sourcefile: string
  content_type: string
  sha256: string
  size_bytes: number
  has_original: boolean
  /** The access list. If both lists are empty, all callers of the tenant may see the document. */
  oids: string[]
  groups: string[]
  updated_at: string
}

export interface DocumentPassage {
  id: string
  number: number
  page: number | null
  headings: string[]
  text: string
  sourcepage: string
}

export interface JobWarning {
  reason: string
  message: string
  page: number | null
  part: string | null
}

export interface Job {
  id: string
  state: 'queued' | 'parsing' | 'indexing' | 'succeeded' | 'unchanged' | 'failed' | 'cancelled'
  stage: string
  percent: number
  index: string
  document_id: string
  sourcefile: string
  progress: { pages_done: number; pages_total: number; chunks_done: number; chunks_total: number }
  error: { reason: string; message: string } | null
  warnings: JobWarning[]
  warning_count: number
  waiting_since: string | null
  /** The job failed permanently and can be replayed. */
  given_up: boolean
  attempt: number
  created_at: string
  updated_at: string
  trace_id: string
}

export interface Lane {
  lane: number
  jobs: number
  places: number | null
}

export interface DeadJob {
  id: string
  index: string
  document_id: string
  sourcefile: string
  error: { reason: string; message: string }
  attempt: number
  died_at: string
}

export interface Found {
  doc_id: string
  node_id: string
  text: string
  score: number
  dense_score: number | null
  sparse_score: number | null
  reranker_score?: number | null
  source: string
  sourcefile: string
  sourcepage: string
  headings: string[]
  metadata: Record<string, unknown>
}

/** A passage among the results of a chat. */
export interface Passage {
  id: string
  index: string
  content: string
  sourcepage: string
  sourcefile: string
  category: string | null
  oids: string[]
  groups: string[]
  captions: { text: string }[]
  score: number | null
  dense_score?: number | null
  sparse_score?: number | null
  reranker_score: number | null
}

export interface Usage {
  prompt_tokens: number
  completion_tokens: number
  total_tokens: number
}

export interface Step {
  name: string
  /** The start of the step, in milliseconds since the start of the answer. Parts of a step have no start. */
  start_ms?: number
  duration_ms: number
  steps?: Step[]
}

export interface Thought {
  title: string
  description: unknown
  props: {
    duration_ms?: number
    first_token_ms?: number | null
    steps?: Step[]
    token_usage?: Usage
    notes?: string[]
    mode?: string
    messages_left_out?: number
  } | null
}

export interface Finding {
  start: number
  end: number
  text: string
  detection: string
  detection_type: string
  detector_id: string
  score: number
}

export interface Detections {
  input?: { message_index?: number; results: Finding[] }[]
  output?: { choice_index?: number; results: Finding[] }[]
  context?: { results: Finding[] }[]
}

export interface ChatContext {
  data_points?: { text: string[]; images: unknown[]; citations: string[] }
  thoughts?: Thought[]
  followup_questions?: string[]
  detections?: Detections
  warnings?: { type: string; message: string }[]
}

export interface ChatMessage {
  role: 'user' | 'assistant'
  content: string
}
