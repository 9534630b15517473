/** The release of Runlake. A test checks that it is equal to the version in `package.json`. */
export const releaseVersion = '0.1.0';
