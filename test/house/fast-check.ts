/** fast-check, whose properties draw from the seed of the run. Suites import it from here; see `biome.json`. */
import fc from 'fast-check';
import { seed } from './seed.ts';

fc.configureGlobal({ seed });

export default fc;
