/** Every chapter of docs/guide runs unchanged; for quickstarts see `quickstarts.test.ts`. */
import { describeGuidePage, guidePages } from './run-guide.ts';

for (const page of guidePages.filter((name) => !name.startsWith('quickstart-'))) describeGuidePage(page);
