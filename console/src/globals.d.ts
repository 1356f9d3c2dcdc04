/** File names of the sample corpus, which the build copies beside the page. */
declare const SAMPLE_CORPUS: readonly string[]
