import { createReadStream, readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import react from '@vitejs/plugin-react'
import { defineConfig, type Plugin } from 'vite'

const here = dirname(fileURLToPath(import.meta.url))
const corpus = join(here, '../examples/corpus')
const sample = readdirSync(corpus).sort()
const LEAST_COMPRESSED = 1024

/** Copies the sample corpus beside the page, which uploads it if the user asks for it. */
function sampleCorpus(): Plugin {
  return {
    name: 'sample-corpus',
    configureServer(server) {
      server.middlewares.use('/console/sample', (request, response) => {
        createReadStream(join(corpus, decodeURIComponent(request.url ?? '').slice(1))).pipe(response)
      })
    },
    generateBundle() {
      for (const name of sample) {
        this.emitFile({ type: 'asset', fileName: `console/sample/${name}`, source: readFileSync(join(corpus, name)) })
      }
    },
  }
}

/** Writes a compressed copy of each text file that is large enough, so that the gateway need not compress responses. */
function compressed(): Plugin {
  return {
    name: 'compressed',
    enforce: 'post',
    generateBundle: {
      order: 'post',
      handler(_options, bundle) {
        for (const [name, file] of Object.entries(bundle)) {
          const content = Buffer.from(file.type === 'chunk' ? file.code : file.source)
          if (!/\.(js|mjs|css|html|svg|md)$/.test(name) || content.length < LEAST_COMPRESSED) continue
          this.emitFile({ type: 'asset', fileName: `${name}.gz`, source: gzipSync(content, { level: 9 }) })
        }
      },
    },
  }
}

export default defineConfig({
  // Relative addresses, because a proxy or a front end profile may serve the page below any path.
  base: './',
  define: { SAMPLE_CORPUS: JSON.stringify(sample) },
  plugins: [react(), sampleCorpus(), compressed()],
  server: { proxy: { '^/(?!console/|src/|@|node_modules/|$)': 'http://127.0.0.1:8080' } },
  build: {
    outDir: '../services/gateway/src/gateway/static',
    emptyOutDir: true,
    assetsDir: 'console',
    // The content security policy forbids `data:` addresses and inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2023',
    chunkSizeWarningLimit: 2000,
  },
})
