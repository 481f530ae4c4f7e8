// Everything a host application needs.
#pragma once

#include "lowtide/bytes.hpp"
#include "lowtide/error.hpp"
#include "lowtide/log.hpp"
#include "lowtide/model.hpp"
#include "lowtide/options.hpp"
#include "lowtide/plan_summary.hpp"
#include "lowtide/run_report.hpp"
#include "lowtide/session.hpp"
