# tries: a module of too many rules
# outcome: compile podops_contract_error
package rule

allow if input.pod.name == "web-0"

allow if input.pod.name == "web-1"

allow if input.pod.name == "web-2"

allow if input.pod.name == "web-3"

allow if input.pod.name == "web-4"

allow if input.pod.name == "web-5"

allow if input.pod.name == "web-6"

allow if input.pod.name == "web-7"

allow if input.pod.name == "web-8"

allow if input.pod.name == "web-9"

allow if input.pod.name == "web-10"

allow if input.pod.name == "web-11"

allow if input.pod.name == "web-12"

allow if input.pod.name == "web-13"

allow if input.pod.name == "web-14"

allow if input.pod.name == "web-15"

allow if input.pod.name == "web-16"

allow if input.pod.name == "web-17"

allow if input.pod.name == "web-18"

allow if input.pod.name == "web-19"

allow if input.pod.name == "web-20"

allow if input.pod.name == "web-21"

allow if input.pod.name == "web-22"

allow if input.pod.name == "web-23"

allow if input.pod.name == "web-24"

allow if input.pod.name == "web-25"

allow if input.pod.name == "web-26"

allow if input.pod.name == "web-27"

allow if input.pod.name == "web-28"

allow if input.pod.name == "web-29"

allow if input.pod.name == "web-30"

allow if input.pod.name == "web-31"

allow if input.pod.name == "web-32"

allow if input.pod.name == "web-33"

allow if input.pod.name == "web-34"

allow if input.pod.name == "web-35"

allow if input.pod.name == "web-36"

allow if input.pod.name == "web-37"

allow if input.pod.name == "web-38"

allow if input.pod.name == "web-39"

allow if input.pod.name == "web-40"

allow if input.pod.name == "web-41"

allow if input.pod.name == "web-42"

allow if input.pod.name == "web-43"

allow if input.pod.name == "web-44"

allow if input.pod.name == "web-45"

allow if input.pod.name == "web-46"

allow if input.pod.name == "web-47"

allow if input.pod.name == "web-48"

allow if input.pod.name == "web-49"

allow if input.pod.name == "web-50"

allow if input.pod.name == "web-51"

allow if input.pod.name == "web-52"

allow if input.pod.name == "web-53"

allow if input.pod.name == "web-54"

allow if input.pod.name == "web-55"

allow if input.pod.name == "web-56"

allow if input.pod.name == "web-57"

allow if input.pod.name == "web-58"

allow if input.pod.name == "web-59"

allow if input.pod.name == "web-60"

allow if input.pod.name == "web-61"

allow if input.pod.name == "web-62"

allow if input.pod.name == "web-63"

allow if input.pod.name == "web-64"

allow if input.pod.name == "web-65"

allow if input.pod.name == "web-66"

allow if input.pod.name == "web-67"

allow if input.pod.name == "web-68"

allow if input.pod.name == "web-69"

allow if input.pod.name == "web-70"

allow if input.pod.name == "web-71"

allow if input.pod.name == "web-72"

allow if input.pod.name == "web-73"

allow if input.pod.name == "web-74"

allow if input.pod.name == "web-75"

allow if input.pod.name == "web-76"

allow if input.pod.name == "web-77"

allow if input.pod.name == "web-78"

allow if input.pod.name == "web-79"

allow if input.pod.name == "web-80"

allow if input.pod.name == "web-81"

allow if input.pod.name == "web-82"

allow if input.pod.name == "web-83"

allow if input.pod.name == "web-84"

allow if input.pod.name == "web-85"

allow if input.pod.name == "web-86"

allow if input.pod.name == "web-87"

allow if input.pod.name == "web-88"

allow if input.pod.name == "web-89"

allow if input.pod.name == "web-90"

allow if input.pod.name == "web-91"

allow if input.pod.name == "web-92"

allow if input.pod.name == "web-93"

allow if input.pod.name == "web-94"

allow if input.pod.name == "web-95"

allow if input.pod.name == "web-96"

allow if input.pod.name == "web-97"

allow if input.pod.name == "web-98"

allow if input.pod.name == "web-99"

allow if input.pod.name == "web-100"

allow if input.pod.name == "web-101"

allow if input.pod.name == "web-102"

allow if input.pod.name == "web-103"

allow if input.pod.name == "web-104"

allow if input.pod.name == "web-105"

allow if input.pod.name == "web-106"

allow if input.pod.name == "web-107"

allow if input.pod.name == "web-108"

allow if input.pod.name == "web-109"

allow if input.pod.name == "web-110"

allow if input.pod.name == "web-111"

allow if input.pod.name == "web-112"

allow if input.pod.name == "web-113"

allow if input.pod.name == "web-114"

allow if input.pod.name == "web-115"

allow if input.pod.name == "web-116"

allow if input.pod.name == "web-117"

allow if input.pod.name == "web-118"

allow if input.pod.name == "web-119"

allow if input.pod.name == "web-120"

allow if input.pod.name == "web-121"

allow if input.pod.name == "web-122"

allow if input.pod.name == "web-123"

allow if input.pod.name == "web-124"

allow if input.pod.name == "web-125"

allow if input.pod.name == "web-126"

allow if input.pod.name == "web-127"

allow if input.pod.name == "web-128"

allow if input.pod.name == "web-129"

allow if input.pod.name == "web-130"

allow if input.pod.name == "web-131"

allow if input.pod.name == "web-132"

allow if input.pod.name == "web-133"

allow if input.pod.name == "web-134"

allow if input.pod.name == "web-135"

allow if input.pod.name == "web-136"

allow if input.pod.name == "web-137"

allow if input.pod.name == "web-138"

allow if input.pod.name == "web-139"

allow if input.pod.name == "web-140"

allow if input.pod.name == "web-141"

allow if input.pod.name == "web-142"

allow if input.pod.name == "web-143"

allow if input.pod.name == "web-144"

allow if input.pod.name == "web-145"

allow if input.pod.name == "web-146"

allow if input.pod.name == "web-147"

allow if input.pod.name == "web-148"

allow if input.pod.name == "web-149"

allow if input.pod.name == "web-150"

allow if input.pod.name == "web-151"

allow if input.pod.name == "web-152"

allow if input.pod.name == "web-153"

allow if input.pod.name == "web-154"

allow if input.pod.name == "web-155"

allow if input.pod.name == "web-156"

allow if input.pod.name == "web-157"

allow if input.pod.name == "web-158"

allow if input.pod.name == "web-159"

allow if input.pod.name == "web-160"

allow if input.pod.name == "web-161"

allow if input.pod.name == "web-162"

allow if input.pod.name == "web-163"

allow if input.pod.name == "web-164"

allow if input.pod.name == "web-165"

allow if input.pod.name == "web-166"

allow if input.pod.name == "web-167"

allow if input.pod.name == "web-168"

allow if input.pod.name == "web-169"

allow if input.pod.name == "web-170"

allow if input.pod.name == "web-171"

allow if input.pod.name == "web-172"

allow if input.pod.name == "web-173"

allow if input.pod.name == "web-174"

allow if input.pod.name == "web-175"

allow if input.pod.name == "web-176"

allow if input.pod.name == "web-177"

allow if input.pod.name == "web-178"

allow if input.pod.name == "web-179"

allow if input.pod.name == "web-180"

allow if input.pod.name == "web-181"

allow if input.pod.name == "web-182"

allow if input.pod.name == "web-183"

allow if input.pod.name == "web-184"

allow if input.pod.name == "web-185"

allow if input.pod.name == "web-186"

allow if input.pod.name == "web-187"

allow if input.pod.name == "web-188"

allow if input.pod.name == "web-189"

allow if input.pod.name == "web-190"

allow if input.pod.name == "web-191"

allow if input.pod.name == "web-192"

allow if input.pod.name == "web-193"

allow if input.pod.name == "web-194"

allow if input.pod.name == "web-195"

allow if input.pod.name == "web-196"

allow if input.pod.name == "web-197"

allow if input.pod.name == "web-198"

allow if input.pod.name == "web-199"

allow if input.pod.name == "web-200"
