import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { longSuites } from './long-suites.ts';

/**
 * Orders suites: first the longest ones, of any project; then all others in the default order of vitest; last the
 * suites that share a process, grouped by project, because vitest reuses a process only if the next suite shares it
 * too.
 */
export class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankByLength = ({ moduleId }: TestSpecification) => {
      const rank = longSuites.findIndex((name) => moduleId.endsWith(`/${name}`));
      return rank < 0 ? longSuites.length : rank;
    };
    const sharing = [...new Set(files.map(({ project }) => project).filter(({ config }) => !config.isolate))];
    const computeRank = (file: TestSpecification) =>
      rankByLength(file) + (sharing.indexOf(file.project) + 1) * (longSuites.length + 1);
    return (await super.sort(files)).sort((a, b) => computeRank(a) - computeRank(b));
  }
}
