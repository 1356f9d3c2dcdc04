/** File names of the sample corpus, which the build puts beside the page. */
declare const SAMPLE_CORPUS: readonly string[]
